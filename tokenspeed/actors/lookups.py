"""Calls to the tokenizer that ask for ids or text and generate nothing.

Owns the calls that are being answered. They are worked on in a thread that is given, one after the
other: whoever counts tokens must not hold up those who wait for a reply. It does not know who asked.

Invariant: every call is answered once, by what was asked for or by `CallFailed`.
"""

from __future__ import annotations

import asyncio
from array import array
from concurrent.futures import Executor
from typing import Protocol

from tokenspeed.actors.outbox import Outbox
from tokenspeed.errors import EngineError, TokenSpeedError
from tokenspeed.messages.base import view_ids
from tokenspeed.messages.engine import CallFailed, Detokenized, Tokenized
from tokenspeed.messages.tokenizer import Detokenize, Prompt, Tokenize


class Builder(Protocol):
    """What is asked; `text.prompt.PromptBuilder` has this form."""

    def encoded(self, prompt: Prompt, namespace: str) -> array[int]: ...
    def pieces(self, ids: memoryview, skip_special: bool) -> list[bytes]: ...


class Lookups:
    """Answers calls through `outbox`, working in `threads`."""

    def __init__(self, builder: Builder, threads: Executor, outbox: Outbox) -> None:
        self._builder = builder
        self._threads = threads
        self._outbox = outbox
        self._open: set[asyncio.Task[None]] = set()

    def take(self, call: Tokenize | Detokenize) -> None:
        """Begin to answer `call`."""
        task = asyncio.ensure_future(self._serve(call))
        self._open.add(task)
        task.add_done_callback(self._open.discard)

    def stop(self) -> None:
        """Answer no more."""
        for task in self._open:
            task.cancel()

    async def _serve(self, call: Tokenize | Detokenize) -> None:
        loop = asyncio.get_running_loop()
        try:
            answer = await loop.run_in_executor(self._threads, self._answer, call)
        except TokenSpeedError as error:
            self._outbox.send("engine", CallFailed(call.call, error.info()))
        except Exception as error:
            fault = EngineError(f"The text could not be read ({type(error).__name__}: {error}).")
            self._outbox.send("engine", CallFailed(call.call, fault.info()))
        else:
            self._outbox.send("engine", answer)

    def _answer(self, call: Tokenize | Detokenize) -> Tokenized | Detokenized:
        if isinstance(call, Tokenize):
            return Tokenized(call.call, self._builder.encoded(call.prompt, call.namespace).tobytes())
        return Detokenized(call.call, self._builder.pieces(view_ids(call.ids), call.skip_special))
