"""`Engine`: the asynchronous engine for synchronous callers, on a loop in a thread of its own.

There is no second path: each call is a coroutine of `AsyncEngine` run on that loop.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator, Sequence
from typing import Any, TypeVar, overload

import msgspec
import uvloop

from tokenspeed.config import EngineConfig
from tokenspeed.engine.aio import AsyncEngine
from tokenspeed.engine.prompts import prompts_of
from tokenspeed.engine.reply import Output, Reply
from tokenspeed.engine.stream import Stream
from tokenspeed.errors import EngineError
from tokenspeed.messages.tokenizer import Chat, Prompt, Text
from tokenspeed.sampling import SamplingParams

T = TypeVar("T")
Settings = SamplingParams | Sequence[SamplingParams] | None
Conversation = list[dict[str, Any]]


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

    @overload
    def generate(self, prompt: str | Prompt, sampling_params: SamplingParams | None = None) -> Reply: ...
    @overload
    def generate(
        self, prompt: str | Prompt | list[str] | list[Prompt], sampling_params: Settings = None, *, n: int
    ) -> list[Reply]: ...
    @overload
    def generate(self, prompt: list[str] | list[Prompt], sampling_params: Settings = None) -> list[Reply]: ...
    @overload
    def generate(self, *, input_ids: list[int], sampling_params: SamplingParams | None = None) -> Reply: ...
    @overload
    def generate(self, *, input_ids: list[list[int]], sampling_params: Settings = None, n: int = 1) -> list[Reply]: ...
    def generate(
        self,
        prompt: str | Prompt | list[str] | list[Prompt] | None = None,
        sampling_params: Settings = None,
        *,
        input_ids: list[int] | list[list[int]] | None = None,
        n: int | None = None,
    ) -> Reply | list[Reply]:
        """Return the whole reply to `prompt` (plain text, or `Chat`, `Text`, `Ids`), or to `input_ids`.

        A list of prompts is computed together and answered by a list in its order; so is one prompt
        with `n`: reply c to prompt p is at p * n + c. `sampling_params` is one for all or one for each
        prompt. If one request fails, all end with its error.
        """
        prompts, is_list = prompts_of(prompt, input_ids)
        replies = self._run(self._replies(prompts, sampling_params, 1 if n is None else n))
        return replies if is_list or n is not None else replies[0]

    @overload
    def chat(self, messages: Conversation, sampling_params: SamplingParams | None = None) -> Reply: ...
    @overload
    def chat(self, messages: list[Conversation], sampling_params: Settings = None) -> list[Reply]: ...
    def chat(
        self, messages: Conversation | list[Conversation], sampling_params: Settings = None
    ) -> Reply | list[Reply]:
        """Return the reply to a conversation in the form of the chat API, or those to a list of them."""
        is_list = bool(messages) and isinstance(messages[0], list)
        prompts: list[Prompt] = [Chat(msgspec.json.encode(each)) for each in (messages if is_list else [messages])]
        replies = self.generate(prompts, sampling_params)
        return replies if is_list else replies[0]

    def stream(self, prompt: str | Prompt, sampling_params: SamplingParams | None = None) -> Iterator[Output]:
        """Yield the reply as it comes. Leaving the iteration cancels the request."""
        stream = self._run(self._open(Text(prompt) if isinstance(prompt, str) else prompt, sampling_params))
        try:
            while (output := self._run(_next(stream))) is not None:
                yield output
        finally:
            if not self._loop.is_closed():
                self._loop.call_soon_threadsafe(stream.cancel)

    def tokenize(self, prompt: str | Prompt) -> list[int]:
        """Return the ids of `prompt`, however long it is."""
        return self._run(self._engine.tokenize(Text(prompt) if isinstance(prompt, str) else prompt))

    def detokenize(self, ids: Sequence[int]) -> str:
        """Return the text of `ids`, control tokens as their marks."""
        return b"".join(self._run(self._engine.detokenize(ids))).decode(errors="replace")

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

    async def _replies(self, prompts: list[Prompt], sampling: Settings, n: int) -> list[Reply]:
        return await self._engine.generate_all(prompts, sampling, n=n).replies()

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
