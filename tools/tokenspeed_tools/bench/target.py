"""What the server is: its name and version, its model, which optional fields it takes.

Owns the questions that are asked before a run. A server that does not answer one of them is asked the
next one; what it tells of itself is kept for the record, but for anything that may be a secret.

Invariant: nothing is assumed of a server that one of its answers did not say.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from tokenspeed_tools.bench.ask import Ask, Place
from tokenspeed_tools.bench.asking import Asking, simpler
from tokenspeed_tools.bench.client import Client
from tokenspeed_tools.bench.http import Exchange, LostError, now
from tokenspeed_tools.bench.lag import LoopWatch
from tokenspeed_tools.bench.plan import Message, user

ASK_LIMIT_S = 10.0
PROBE_LIMIT_S = 600.0  # the first request may load and compile
# Paths that tell of a server, and the fields worth keeping: others may hold keys, and whole settings.
TELLING = {
    "/version": ("version",),
    "/health": ("status", "ready"),
    "/props": ("build_info", "total_slots"),
    "/get_server_info": ("version", "tp_size", "dp_size", "chunked_prefill_size", "max_running_requests", "dtype"),
}


class TargetError(RuntimeError):
    """The server cannot be measured; the text says why and what to do."""


class Server(NamedTuple):
    """Who answers. `context_tokens` is None where it does not tell."""

    model: str
    name: str
    info: dict[str, Any]
    context_tokens: int | None


async def look(client: Client, model: str | None) -> Server:
    """Return who the server is; `model` None means the first one it serves. Raise `TargetError`."""
    status, listed, headers = await _get(client, "/v1/models")
    if status in (401, 403):
        raise TargetError(f"{client.url} wants a key ({status}): give --api-key-file or --api-key-env")
    cards = [card for card in listed.get("data") or [] if isinstance(card, dict)]
    card = next((card for card in cards if model in (None, card.get("id"))), {})
    name = model or card.get("id")
    if not isinstance(name, str):
        raise TargetError(f"{client.url}/v1/models answers {status} and names no model: give --model")
    info: dict[str, Any] = {"models": [card.get("id") for card in cards], "owned_by": card.get("owned_by")}
    if "server" in headers:
        info["server"] = headers["server"]
    for path, fields in TELLING.items():
        _, told, _ = await _get(client, path)
        info |= {f"{path.strip('/')}.{field}": told[field] for field in fields if field in told}
    lengths = (card.get(field) for field in ("max_model_len", "context_length"))
    tokens = next((length for length in lengths if isinstance(length, int)), None)
    info["max_model_len"] = tokens
    return Server(name, _name(info), info, tokens)


def _name(info: dict[str, Any]) -> str:
    """Return name and version as far as they were told."""
    name = str(info.get("owned_by") or info.get("server") or "unknown").split("/")[0]
    versions = (info.get(key) for key in ("version.version", "props.build_info", "get_server_info.version"))
    version = next((version for version in versions if version), "")
    return f"{name} {version}".strip()


async def _get(client: Client, path: str) -> tuple[int, dict[str, Any], dict[str, str]]:
    """Return status, the JSON object of a good answer, and headers; status 0 if none came from a known address."""
    exchange = Exchange()
    try:
        async with asyncio.timeout(ASK_LIMIT_S):
            await client.get(path, exchange)
    except TimeoutError:
        return 0, {}, {}
    except LostError as error:
        raise TargetError(f"{error}. Is the server running there? --base-url names another one.") from None
    try:
        told = msgspec.json.decode(b"".join(exchange.body)) if exchange.status == 200 else None
    except msgspec.DecodeError:
        told = None
    return exchange.status, told if isinstance(told, dict) else {}, exchange.headers


class Probe:
    """Short requests before a run, none of which is counted."""

    def __init__(self, client: Client, asking: Asking, watch: LoopWatch) -> None:
        self.asking = asking
        self._client = client
        self._watch = watch

    async def fit(self) -> dict[str, str]:
        """Leave out of `asking` what the server refuses; return the notes on it. Raise `TargetError`."""
        first = ""
        for asking, notes in simpler(self.asking):
            ask = Ask(Place(0, 0, 0, True, now()), now(), self._watch)
            error = await ask.run(self._client, asking, [user("of the")], 2, PROBE_LIMIT_S)
            if error is None or (200 <= ask.status < 300 and not ask.reply.error):
                self.asking = asking
                return notes
            first = first or error
            if ask.status not in (400, 422):
                break
        raise TargetError(f"a short request to {self._client.url}{self.asking.path} failed: {first}")

    async def count(self, conversation: Sequence[Message]) -> int | None:
        """Return the server's count of a prompt, None if it does not tell. Raise `TargetError`."""
        ask = Ask(Place(0, 0, 0, True, now()), now(), self._watch)
        error = await ask.run(self._client, self.asking, conversation, 1, PROBE_LIMIT_S)
        if error is not None and not 200 <= ask.status < 300:
            raise TargetError(f"a probe of {self._client.url}{self.asking.path} failed: {error}")
        return ask.reply.usage.prompt_tokens
