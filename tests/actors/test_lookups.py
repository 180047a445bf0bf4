from __future__ import annotations

import asyncio
from array import array
from concurrent.futures import ThreadPoolExecutor

import uvloop

from tokenspeed.actors.lookups import Lookups
from tokenspeed.errors import UserError
from tokenspeed.messages.base import Message, pack_ids, unpack_ids
from tokenspeed.messages.engine import CallFailed, Detokenized, Tokenized
from tokenspeed.messages.tokenizer import Detokenize, Prompt, Text, Tokenize


class Builder:
    """Encodes a text as its bytes; refuses an empty one, and breaks at one that has a question mark."""

    def encoded(self, prompt: Prompt, namespace: str) -> array[int]:
        assert isinstance(prompt, Text)
        if not prompt.text:
            raise UserError("empty", param="prompt")
        if "?" in prompt.text:
            raise ValueError("broken")
        return array("i", list(f"{namespace}{prompt.text}".encode()))

    def pieces(self, ids: memoryview, skip_special: bool) -> list[bytes]:
        return [bytes([token]) for token in ids if not (skip_special and token == 1)]


class Outbox:
    def __init__(self) -> None:
        self.sent: dict[int, Message] = {}

    def send(self, _reader: str, message: Tokenized | Detokenized | CallFailed) -> None:
        self.sent[message.call] = message


def test_every_call_is_answered_once() -> None:
    outbox = Outbox()

    async def main() -> None:
        with ThreadPoolExecutor(1) as threads:
            lookups = Lookups(Builder(), threads, outbox)  # type: ignore[arg-type]
            calls = (
                Tokenize(1, Text("ab"), "n"),
                Tokenize(2, Text("")),
                Tokenize(3, Text("?")),
                Detokenize(4, pack_ids([1, 97])),
                Detokenize(5, pack_ids([1, 97]), skip_special=True),
            )
            for call in calls:
                lookups.take(call)
            async with asyncio.timeout(5.0):
                while len(outbox.sent) < len(calls):  # noqa: ASYNC110 - the outbox tells nobody
                    await asyncio.sleep(0.001)

    uvloop.run(main())
    ids, refused, broken, shown, hidden = (outbox.sent[call] for call in range(1, 6))
    assert isinstance(ids, Tokenized)
    assert unpack_ids(ids.ids) == list(b"nab")
    assert isinstance(refused, CallFailed)
    assert (refused.error.status, refused.error.param) == (400, "prompt")
    assert isinstance(broken, CallFailed)
    assert broken.error.status == 500
    assert (shown, hidden) == (Detokenized(4, [b"\x01", b"a"]), Detokenized(5, [b"a"]))
