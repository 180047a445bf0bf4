"""The reply of one request, as the caller reads it.

Owns what was delivered so far: ids, characters and the end. It does not know actors. Deltas may
come again after a restart; what the caller has seen is dropped here by its offset.

Invariant: the caller gets each id and each character once, in order, and exactly one end.
"""

from __future__ import annotations

import asyncio
import time
from array import array
from collections import deque
from collections.abc import Callable
from enum import Enum, auto

from tokenspeed.caller import CALLER, Account
from tokenspeed.engine.reply import Output
from tokenspeed.errors import EngineError, TokenSpeedError, UserError
from tokenspeed.ipc.trace import NOWHERE, Trace
from tokenspeed.messages.base import view_ids
from tokenspeed.messages.detokenizer import PromptTimes
from tokenspeed.messages.engine import OutputDelta
from tokenspeed.messages.tokenizer import Chat, GenerateRequest, Prompt, Text
from tokenspeed.points import Finish, Kind

DELTA, WRITTEN = int(Kind.DELTA), int(Kind.WRITTEN)


class _End(Enum):
    OPEN = auto()
    FINISHED = auto()
    FAILED = auto()
    CANCELLED = auto()


class Stream:
    """An asynchronous iterator over `Output`; raises the request's error instead of its end.

    Dropping out of the iteration does not cancel: call `cancel`, or use it as a context manager.
    """

    def __init__(self, request: GenerateRequest, on_end: Callable[[Stream], None], trace: Trace = NOWHERE) -> None:
        self._trace = trace
        self.request = request.request
        self.message = request
        self.delivered = array("i")
        self.is_accepted = False
        self.prompt_tokens = 0
        self.deaths = 0  # of actors that had it in hand, since its last output
        self._on_end = on_end
        self._caller = CALLER.get()
        if self._caller is not None and self._caller.received_ns:
            trace.point_at(self._caller.received_ns, Kind.RECEIVED, self.request)
        self._begun_s = time.monotonic()
        self._first_s: float | None = None
        self._times: PromptTimes | None = None
        self._last: Output | None = None
        self._chars = 0
        self._texts: list[str] = []
        self._outputs: deque[Output] = deque()
        self._news = asyncio.Event()
        self._accepted = asyncio.Event()
        self._end = _End.OPEN
        self._error: TokenSpeedError | None = None

    def __aiter__(self) -> Stream:
        return self

    async def __anext__(self) -> Output:
        while not self._outputs:
            if self._error is not None:
                raise self._error
            if self._end is not _End.OPEN:
                raise StopAsyncIteration
            self._news.clear()
            await self._news.wait()
        return self._outputs.popleft()

    async def __aenter__(self) -> Stream:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.cancel()

    async def accepted(self) -> None:
        """Return when the request was found valid; raise its error if it was refused."""
        await self._accepted.wait()
        if self._error is not None:
            raise self._error

    def cancel(self) -> None:
        """End the request now, wherever it is. Calling it again, or after the end, does nothing."""
        self._finish(_End.CANCELLED)

    def written(self, size: int = 0) -> None:
        """Note that a door has sent what came last, `size` bytes of it."""
        self._trace.point(WRITTEN, self.request, 0, size)

    @property
    def text(self) -> str:
        """What was delivered so far, as text."""
        return "".join(self._texts)

    @property
    def is_cancelled(self) -> bool:
        """Whether the caller ended it before its end."""
        return self._end is _End.CANCELLED

    @property
    def is_failed(self) -> bool:
        """Whether it ended with an error."""
        return self._end is _End.FAILED

    @property
    def error_code(self) -> str:
        """The code of the error that it ended with, "invalid" if that was the caller's fault, else ""."""
        if self._error is None:
            return ""
        return "invalid" if isinstance(self._error, UserError) else self._error.code

    # The engine's side.

    def accept(self, prompt_tokens: int) -> None:
        """Note that the scheduler has it."""
        self.is_accepted = True
        self.prompt_tokens = prompt_tokens
        self._accepted.set()

    def push(self, delta: OutputDelta) -> None:
        """Append what is new in `delta`."""
        known = max(0, len(self.delivered) - delta.first)
        ids = view_ids(delta.ids)[known:].tolist()
        text = delta.text[max(0, self._chars - delta.text_offset) :]
        if not (ids or text or delta.finish):
            return
        is_first = not self.delivered and not self._chars
        self.delivered.extend(ids)
        self._chars += len(text)
        self._texts.append(text)
        self.deaths = 0
        self._accepted.set()
        output = self._last = Output(
            text=text,
            ids=ids,
            finish=delta.finish,
            stop_reason=delta.stop_reason,
            prompt_tokens=delta.prompt_tokens,
            cached_tokens=delta.cached_tokens,
            completion_tokens=delta.completion_tokens,
            logprobs=None if delta.logprobs is None else delta.logprobs[known:],
            prompt_logprobs=delta.prompt_logprobs if is_first else None,
        )
        self._outputs.append(output)
        self._trace.point(DELTA, self.request, 0, len(self.delivered))
        if self._first_s is None:
            self._first_s = time.monotonic() - self._begun_s
            self._times = delta.times
        self._news.set()
        if delta.finish:
            self._finish(_End.FINISHED)

    def fail(self, error: TokenSpeedError) -> None:
        """End it with `error`, after what was delivered."""
        if self._end is _End.OPEN:
            self._error = error
            self._finish(_End.FAILED)

    def _finish(self, end: _End) -> None:
        if self._end is not _End.OPEN:
            return
        self._end = end
        if end is _End.CANCELLED:
            self._outputs.clear()
            self._error = EngineError("The request was cancelled.", status=499, code="cancelled")
        self._accepted.set()
        self._news.set()
        self._trace.point(Kind.FINISHED, self.request, value=self._how())
        if self._caller is not None:
            self._caller.replies.append(self._account())
        self._on_end(self)

    def _how(self) -> Finish:
        match self._end:
            case _End.FAILED:
                return Finish.ERROR
            case _End.CANCELLED:
                return Finish.ABORT
        return Finish.STOP if self._last is not None and self._last.finish == "stop" else Finish.LENGTH

    def _account(self) -> Account:
        last = self._last
        keep_text = self._caller is not None and self._caller.keep_text
        return Account(
            finish=(last.finish if last else "") or (self._error.code if self._error else ""),
            prompt_tokens=last.prompt_tokens if last else self.prompt_tokens,
            cached_tokens=last.cached_tokens if last else 0,
            completion_tokens=last.completion_tokens if last else 0,
            first_s=self._first_s,
            duration_s=time.monotonic() - self._begun_s,
            begun_s=self._begun_s,
            times=self._times,
            sampling=self.message.sampling,
            request=self.request,
            prompt=_as_text(self.message.prompt) if keep_text else "",
            text=self.text if keep_text else "",
        )


def _as_text(prompt: Prompt) -> str:
    match prompt:
        case Text():
            return prompt.text
        case Chat():
            return bytes(prompt.messages).decode(errors="replace")
    return str(view_ids(prompt.ids).tolist())
