from __future__ import annotations

import msgspec
import pytest

from tests.server.doors import CHAT, Door, knock
from tokenspeed.errors import EngineError, TokenSpeedError, UserError
from tokenspeed.server.errors import error_response


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (UserError("x"), "invalid_request_error"),
        (UserError("x", status=404), "invalid_request_error"),
        (UserError("x", status=429), "rate_limit_error"),
        (EngineError("x"), "server_error"),
        (EngineError("x", status=503), "server_error"),
    ],
)
def test_status_and_shape(error: TokenSpeedError, kind: str) -> None:
    response = error_response(error)
    assert response.status_code == error.status
    body = msgspec.json.decode(bytes(response.body))
    assert body == {"error": {"message": "x", "type": kind, "param": None, "code": error.code}}
    assert ("retry-after" in response.headers) == (error.status in (429, 503))


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/", 404, "not_found"),
        ("POST", "/v1/nothing", 404, "not_found"),
        ("GET", "/v1/models/", 404, "model_not_found"),
        ("GET", CHAT + "/", 404, "not_found"),
        ("POST", "/flush_cache", 403, "admin_only"),
        ("POST", "/stats", 403, "admin_only"),
        ("GET", CHAT, 405, "method_not_allowed"),
        ("DELETE", "/v1/models", 405, "method_not_allowed"),
        ("POST", "/health", 405, "method_not_allowed"),
    ],
)
def test_what_routing_refuses_has_the_same_shape(method: str, path: str, status: int, code: str) -> None:
    async def test(door: Door) -> None:
        reply = await door.client.request(method, path)
        assert reply.status_code == status
        error = reply.json()["error"]
        assert set(reply.json()) == {"error", "request_id"}
        assert set(error) == {"message", "type", "param", "code"}
        assert error["code"] == code
        assert ("allow" in reply.headers) == (status == 405)
        assert (await door.client.head(path)).status_code in (200, 403, 404, 405)

    knock(test)


def test_an_unplanned_exception_is_a_500_that_tells_nothing_but_the_id(caplog: pytest.LogCaptureFixture) -> None:
    async def test(door: Door) -> None:
        def broken(*_: object, **__: object) -> None:
            raise RuntimeError("the secret")

        door.engine.generate = broken  # type: ignore[assignment, method-assign]
        reply = await door.chat()
        assert reply.status_code == 500
        assert "secret" not in reply.text
        assert reply.headers["x-request-id"] in reply.json()["error"]["message"]
        assert reply.json()["error"]["type"] == "server_error"
        assert (await door.client.get("/health")).status_code == 200

    knock(test)
    assert "the secret" in caplog.text


def test_a_long_path_is_not_repeated_whole() -> None:
    async def test(door: Door) -> None:
        reply = await door.client.get("/" + "a" * 5000)
        assert reply.status_code == 404
        assert len(reply.text) < 500

    knock(test)
