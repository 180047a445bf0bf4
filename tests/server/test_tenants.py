"""Two keys: nothing that one can see differs by what the other sent."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest

from tests.server.doors import CHAT, Door, knock
from tests.server.fake_engine import HELLO, FakeEngine, Output, Stream
from tokenspeed.config import Secret
from tokenspeed.messages.tokenizer import Prompt
from tokenspeed.sampling import SamplingParams
from tokenspeed.server.tenants import TenantEngine, tenant_of_request

ANN, BOB = {"x-api-key": "ann-key"}, {"authorization": "Bearer bob-key"}
SETTINGS: dict[str, Any] = {"api_keys": (Secret("ann:ann-key"), Secret("bob-key")), "admin_key": Secret("root-key")}
PROMPT = {"messages": [{"role": "user", "content": "the same words"}]}


class CachingEngine(FakeEngine):
    """Remembers prompts by namespace, as the tokenizer's and the scheduler's caches do, and tells of it."""

    def __init__(self) -> None:
        super().__init__()
        self.known: set[tuple[str, bytes]] = set()

    def generate(self, prompt: Prompt, sampling: SamplingParams, *, namespace: str, session: str) -> Stream:
        place = (namespace, getattr(prompt, "messages", b""))
        cached = 6 if place in self.known else 0
        self.known.add(place)
        self.script = [[step if not isinstance(step, Output) else _with(step, cached) for step in HELLO]]
        return super().generate(prompt, sampling, namespace=namespace, session=session)


def _with(output: Output, cached: int) -> Output:
    return Output(output.text, output.finish, None, output.completion_tokens, [], 7, cached)


async def everything(door: Door, headers: dict[str, str]) -> list[str]:
    """Return every answer that a tenant can get, with what is drawn or timed masked."""
    get, post = door.client.get, door.client.post
    replies = [
        await post(CHAT, json=PROMPT, headers=headers),
        await post(CHAT, json={**PROMPT, "cache_salt": "s", "prompt_cache_key": "k"}, headers=headers),
        await post(CHAT, json={**PROMPT, "stream": True, "stream_options": {"include_usage": True}}, headers=headers),
        await post(CHAT, json={**PROMPT, "temperature": -1}, headers=headers),
        await post(CHAT, json={**PROMPT, "model": "no"}, headers=headers),
        *[await get(path, headers=headers) for path in ("/v1/models", "/health", "/ready", "/stats", "/metrics", "/x")],
    ]
    return [masked(reply) for reply in replies]


def masked(reply: httpx.Response) -> str:
    head = "\n".join(
        f"{name}: {value}" for name, value in reply.headers.items() if name not in ("date", "x-request-id")
    )
    text = re.sub(r"(chatcmpl|req)-[0-9a-f]+", "ID", re.sub(r'"created":[0-9]+', "TIME", reply.text))
    return f"{reply.status_code}\n{head}\n{text}"


async def nothing(_door: Door) -> None:
    """Send nothing."""


async def the_same(door: Door) -> None:
    """Send what the other one will send, with her names for salt and session."""
    await everything(door, ANN)


async def much(door: Door) -> None:
    """Send all sorts of things, and leave a reply open."""
    for salt in ("", "s", "key:", "name:bob", "\0", "bob-key"):
        await door.client.post(CHAT, json={**PROMPT, "cache_salt": salt}, headers=ANN)
    await door.client.post(CHAT, content=b"{" * 1000, headers=ANN)


@pytest.mark.parametrize("before", [the_same, much])
def test_no_field_differs_by_what_the_other_sent(before: Callable[[Door], Awaitable[None]]) -> None:
    seen: list[list[str]] = []

    def run(first: Callable[[Door], Awaitable[None]]) -> None:
        async def test(door: Door) -> None:
            await first(door)
            seen.append(await everything(door, BOB))
            seen.append(await everything(door, BOB))

        knock(test, lambda: CachingEngine().begin(), **SETTINGS)

    run(nothing)
    run(before)
    assert seen[0] == seen[2]
    assert seen[1] == seen[3]
    assert seen[0] != seen[1]  # his own second prompt is cached, so the test can see it


def test_names_cannot_be_guessed_and_never_meet() -> None:
    engine, other = TenantEngine(FakeEngine()), TenantEngine(FakeEngine())
    names = set()
    salts = ("", "a", "name:a", "\0a", "ab", "\ud800")
    for tenant in ("", "name:a", "name:b", "key:00"):
        token = tenant_of_request.set(tenant)
        names |= {engine.namespace(salt) for salt in salts}
        assert engine.namespace("a") == engine.namespace("a") != other.namespace("a")
        tenant_of_request.reset(token)
    assert len(names) == 4 * len(salts)
    assert engine.namespace("") == ""


def test_sessions_of_the_same_name_are_two() -> None:
    async def test(door: Door) -> None:
        for headers in (ANN, BOB, ANN):
            await door.client.post(CHAT, json=PROMPT, headers={**headers, "x-session-id": "mine"})
        await door.client.post(CHAT, json=PROMPT, headers=ANN)
        sessions = [session for _, _, _, session in door.engine.asked]
        assert sessions[0] == sessions[2] != sessions[1]
        assert "mine" not in sessions
        assert sessions[3] == ""

    knock(test, **SETTINGS)
