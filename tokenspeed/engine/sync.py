"""`Engine`: the asynchronous engine for synchronous callers, on a loop in a thread of its own.

There is no second path: each call is a coroutine of `AsyncEngine` run on that loop.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from typing import Any, TypeVar

import msgspec
import uvloop

from tokenspeed.config import EngineConfig
from tokenspeed.engine.aio import AsyncEngine
from tokenspeed.engine.stream import Output, Stream
from tokenspeed.errors import EngineError
from tokenspeed.messages.tokenizer import Chat, Prompt, Text
from tokenspeed.sampling import SamplingParams

T = TypeVar("T")


class Reply(msgspec.Struct, frozen=True):
    """A whole reply. `finish` is "stop" or "length"; token counts as in `Output`."""

    text: str
    ids: list[int]
    finish: str
    stop_reason: str | int | None
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int


class Engine:
    """Serves one model to this process. A context manager; `close` stops every actor."""

    def __init__(self, model: str | None = None, **settings: Any) -> None:
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="engine", daemon=True)
        self._thread.start()
        try:
            self._engine = self._run(self._start(EngineConfig(model=model, **settings)))
        except BaseException:
            self._stop_loop()
            raise

    def generate(self, prompt: str | Prompt, sampling: SamplingParams | None = None) -> Reply:
        """Return the whole reply to `prompt` (plain text, or `Chat`, `Text`, `Ids`)."""
        outputs = list(self.stream(prompt, sampling))
        last = outputs[-1]
        return Reply(
            text="".join(output.text for output in outputs),
            ids=[token for output in outputs for token in output.ids],
            finish=last.finish,
            stop_reason=last.stop_reason,
            prompt_tokens=last.prompt_tokens,
            cached_tokens=last.cached_tokens,
            completion_tokens=last.completion_tokens,
        )

    def chat(self, messages: list[dict[str, Any]], sampling: SamplingParams | None = None) -> Reply:
        """Return the reply to a conversation in the form of the chat API."""
        return self.generate(Chat(msgspec.json.encode(messages)), sampling)

    def stream(self, prompt: str | Prompt, sampling: SamplingParams | None = None) -> Iterator[Output]:
        """Yield the reply as it comes. Leaving the iteration cancels the request."""
        stream = self._run(self._open(Text(prompt) if isinstance(prompt, str) else prompt, sampling))
        try:
            while (output := self._run(_next(stream))) is not None:
                yield output
        finally:
            if not self._loop.is_closed():
                self._loop.call_soon_threadsafe(stream.cancel)

    def flush_cache(self) -> int:
        """Forget every cached page that no request holds; return how many pages that freed."""
        return self._run(self._engine.flush_cache())

    def close(self) -> None:
        """Stop the actors. Calling it again does nothing."""
        if self._thread.is_alive():
            self._run(self._engine.close())
            self._stop_loop()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def _start(self, config: EngineConfig) -> AsyncEngine:
        engine = AsyncEngine(config)
        await engine.start()
        return engine

    async def _open(self, prompt: Prompt, sampling: SamplingParams | None) -> Stream:
        return self._engine.generate(prompt, sampling)

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        if self._loop.is_closed():
            work.close()
            raise EngineError("The engine was closed.", status=503, code="closed")
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _stop_loop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _next(stream: Stream) -> Output | None:
    return await anext(stream, None)
