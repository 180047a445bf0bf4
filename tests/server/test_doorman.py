from __future__ import annotations

import socket
from typing import Any

import httpx
import pytest
from starlette.datastructures import Headers

from tests.server.doors import CHAT, HI, Door, knock
from tokenspeed.config import Secret, ServerConfig
from tokenspeed.errors import UserError
from tokenspeed.server.doorman import Access

KEYS: dict[str, Any] = {"api_keys": (Secret("ann:sesame"), Secret("other"))}
ADMIN: dict[str, Any] = {**KEYS, "admin_key": Secret("root")}
BEARER = {"authorization": "Bearer sesame"}


def code_of(reply: httpx.Response) -> tuple[int, str]:
    return reply.status_code, reply.json()["error"]["code"] if reply.status_code >= 400 else ""


def test_every_route_but_the_probes_needs_a_key() -> None:
    async def test(door: Door) -> None:
        for path in ("/v1/models", CHAT, "/tokenize", "/nothing", "/", "/v1/models/x"):
            for method in ("GET", "POST", "OPTIONS"):
                reply = await door.client.request(method, path)
                assert code_of(reply) == (401, "invalid_api_key")
                assert reply.json()["error"]["type"] == "authentication_error"
                assert reply.headers["www-authenticate"] == "Bearer"
        assert not door.engine.asked

    knock(test, **KEYS)


def test_a_key_is_a_bearer_or_x_api_key() -> None:
    cases: list[tuple[dict[str, Any], int]] = [
        (BEARER, 200),
        ({"authorization": "bearer  sesame"}, 200),
        ({"x-api-key": "sesame"}, 200),
        ({"x-api-key": "other"}, 200),
        ({"authorization": "Basic abc", "x-api-key": "sesame"}, 200),  # a proxy's own login
        ({"authorization": "Bearer sesam"}, 401),
        ({"authorization": "Bearer ann:sesame"}, 401),
        ({"authorization": "sesame"}, 401),
        ({"authorization": "Bearer"}, 401),
        ({"x-api-key": "s\xe9same".encode("latin-1")}, 401),
        ({"authorization": "Bearer nope", "x-api-key": "sesame"}, 401),
    ]

    async def test(door: Door) -> None:
        for headers, status in cases:
            reply = await door.client.post(CHAT, json=HI, headers=headers)
            assert reply.status_code == status, headers
            assert "sesam" not in reply.text

    knock(test, **KEYS)


def test_probes_are_open_and_tell_strangers_nothing_of_others() -> None:
    async def test(door: Door) -> None:
        for path in ("/health", "/ready"):
            assert (await door.client.get(path)).json() == {"status": "ready", "ready": True}
            assert (await door.client.get(path, headers=BEARER)).json() == {"status": "ready", "ready": True}
            assert "requests_open" in (await door.client.get(path, headers={"x-api-key": "root"})).json()

    knock(test, **ADMIN)


def test_admin_routes_need_the_admin_key_and_it_opens_nothing_else() -> None:
    async def test(door: Door) -> None:
        root = {"x-api-key": "root"}
        assert (await door.client.post("/flush_cache", headers=root)).json() == {"pages_freed": 5}
        assert (await door.client.get("/stats", headers=root)).json()["pages_total"] == 4096
        for headers in (BEARER, {}):
            assert code_of(await door.client.post("/flush_cache", headers=headers)) == (401, "invalid_api_key")
            assert code_of(await door.client.get("/stats", headers=headers)) == (401, "invalid_api_key")
        assert code_of(await door.client.post(CHAT, json=HI, headers=root)) == (401, "invalid_api_key")

    knock(test, **ADMIN)


@pytest.mark.parametrize("settings", [{}, KEYS])
def test_without_an_admin_key_they_are_closed(settings: dict[str, Any]) -> None:
    async def test(door: Door) -> None:
        for method, path in (("POST", "/flush_cache"), ("GET", "/stats")):
            reply = await door.client.request(method, path, headers=BEARER)
            assert code_of(reply) == (403, "admin_only")
            assert "--admin-key" in reply.json()["error"]["message"]

    knock(test, **settings)


@pytest.mark.parametrize(
    ("settings", "headers", "status"),
    [
        ({}, {}, 0),
        (KEYS, BEARER, 403),
        (ADMIN, BEARER, 401),
        (ADMIN, {"x-api-key": "root"}, 0),
        ({**KEYS, "open_metrics": True}, {}, 0),
    ],
)
def test_metrics_count_everybody_so_they_are_the_admins(
    settings: dict[str, Any], headers: dict[str, str], status: int
) -> None:
    access = Access(ServerConfig(**settings).access, "127.0.0.1")
    try:
        assert access.check("/metrics", Headers(headers)) == ""
        seen = 0
    except UserError as error:
        seen = error.status
    assert seen == status


@pytest.mark.parametrize(
    ("host", "bound", "allowed", "fine"),
    [
        ("localhost", "127.0.0.1", (), True),
        ("LOCALHOST:80", "127.0.0.1", (), True),
        ("127.0.0.1:8000", "127.0.0.1", (), True),
        ("[::1]:8000", "::1", (), True),
        ("[::1]", "127.0.0.1", (), True),
        ("evil.example", "127.0.0.1", (), False),
        ("evil.example:8000", "0.0.0.0", (), False),
        ("127.0.0.1.evil.example", "127.0.0.1", (), False),
        ("localhost.", "127.0.0.1", (), False),
        ("10.1.2.3:8000", "0.0.0.0", (), True),
        ("10.1.2.3", "10.1.2.3", (), True),
        ("10.1.2.3", "127.0.0.1", (), False),
        ("[fe80::1]:8000", "::", (), True),
        (socket.gethostname(), "0.0.0.0", (), True),
        ("box.lan:8000", "0.0.0.0", ("box.lan",), True),
        ("any.where", "0.0.0.0", ("*",), True),
    ],
)
def test_without_keys_the_host_must_be_one_of_ours(host: str, bound: str, allowed: tuple[str, ...], fine: bool) -> None:
    access = Access(ServerConfig(allowed_hosts=allowed).access, bound)
    if fine:
        access.check("/v1/models", Headers({"host": host}))
        return
    with pytest.raises(UserError, match="--allowed-hosts") as caught:
        access.check("/health", Headers({"host": host}))
    assert (caught.value.status, caught.value.code) == (403, "host_not_allowed")
    access = Access(ServerConfig(api_keys=(Secret("sesame"),)).access, bound)
    assert access.check(CHAT, Headers({"host": host, **BEARER}))


def test_a_page_of_another_origin_is_turned_away_unless_it_is_allowed() -> None:
    mine, other = "http://mine.example", "http://other.example"

    async def test(door: Door) -> None:
        for origin in (other, "null", door.url.replace("http:", "https:")):
            reply = await door.client.post(CHAT, json=HI, headers={"origin": origin})
            assert code_of(reply) == (403, "origin_not_allowed")
            assert "--allowed-origins" in reply.json()["error"]["message"]
        assert not door.engine.asked
        reply = await door.client.post(CHAT, json=HI, headers={"origin": mine})
        assert (reply.status_code, reply.headers["access-control-allow-origin"]) == (200, mine)
        asked = {"origin": mine, "access-control-request-method": "POST", "access-control-request-headers": "x-api-key"}
        reply = await door.client.options(CHAT, headers=asked)
        assert reply.status_code == 200
        assert reply.headers["access-control-allow-origin"] == mine
        assert "x-api-key" in reply.headers["access-control-allow-headers"]
        reply = await door.client.options(CHAT, headers={**asked, "origin": other})
        assert "access-control-allow-origin" not in reply.headers

    knock(test, allowed_origins=(mine,))


def test_a_preflight_needs_no_key_where_its_origin_is_allowed() -> None:
    async def test(door: Door) -> None:
        asked = {"origin": "http://mine.example", "access-control-request-method": "POST"}
        assert (await door.client.options(CHAT, headers=asked)).status_code == 200
        reply = await door.client.post(CHAT, json=HI, headers={"origin": "http://mine.example"})
        assert reply.status_code == 401
        assert reply.headers["access-control-allow-origin"]  # the page may read why

    knock(test, **KEYS, allowed_origins=("http://mine.example",))
