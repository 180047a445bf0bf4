"""An engine driven by a script: the face of `tokenspeed.engine.AsyncEngine` without anything behind it.

A script is a list of steps for each reply in turn (the last one repeats): an `Output` is yielded, a
number waits that many seconds, an exception is raised, an `asyncio.Event` is waited for.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from tokenspeed.caller import CALLER, Account, Trail
from tokenspeed.config import DEVICE_DEFAULTS, EngineConfig, ModelConfig
from tokenspeed.engine.aio import Load
from tokenspeed.engine.meter import Meter
from tokenspeed.engine.recent import RecentCallers
from tokenspeed.errors import EngineError, UserError
from tokenspeed.messages.base import unpack_ids
from tokenspeed.messages.detokenizer import PromptTimes
from tokenspeed.messages.engine import EndId, PositionLogprobs, SchedulerStats
from tokenspeed.messages.tokenizer import Chat, Ids, Prompt, Text
from tokenspeed.sampling import SamplingParams


class Output(msgspec.Struct):
    text: str = ""
    finish: str = ""
    stop_reason: str | int | None = None
    completion_tokens: int = 0
    ids: list[int] = []
    prompt_tokens: int = 7
    cached_tokens: int = 4
    logprobs: list[PositionLogprobs] | None = None
    prompt_logprobs: list[PositionLogprobs | None] | None = None


class Health(msgspec.Struct):
    ok: bool
    state: str
    actors: dict[str, Any]


class Actor(msgspec.Struct):
    state: str = "ready"
    restarts: int = 0
    pid: int = 1


class Checkpoint(msgspec.Struct):
    path: Path = Path("/models/fake.gguf")
    architecture: str = "llama"
    parameters: int = 134_515_008
    weights_bytes: int = 98_362_432
    types: tuple[str, ...] = ("Q4_1", "F32")


BOS = 1
VOCABULARY = 50_000
Step = Output | float | Exception | asyncio.Event
END = Output(" wörld\n", finish="stop", completion_tokens=3)
HELLO: tuple[Step, ...] = (Output("Hel"), Output("lo"), END)
FOREVER: tuple[Step, ...] = (Output("first"), 3600.0)


async def act(step: Step) -> None:
    """Do what a step other than an output says."""
    if isinstance(step, Exception):
        raise step
    if isinstance(step, asyncio.Event):
        await step.wait()
    elif isinstance(step, int | float):
        await asyncio.sleep(step)


class Stream:
    def __init__(self, engine: FakeEngine, request: int, steps: Iterable[Step]) -> None:
        self.request = request
        self._engine = engine
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._outputs = self._run(steps)
        self._caller = CALLER.get()
        self._last = Output()
        self._begun_s = time.monotonic()

    async def accepted(self) -> None:
        for step in self._engine.accept:
            await self._act(step)

    def __aiter__(self) -> AsyncIterator[Output]:
        return self._outputs

    async def _run(self, steps: Iterable[Step]) -> AsyncIterator[Output]:
        await self.accepted()
        for step in steps:
            if not isinstance(step, Output):
                await self._act(step)
                continue
            self._last = step
            if step.finish:
                self._end()
            yield step
        self._end()

    async def _act(self, step: Step) -> None:
        """Do `step`, or raise what ended the stream meanwhile."""
        work = asyncio.ensure_future(act(step))
        try:
            await asyncio.wait((work, self._ended), return_when=asyncio.FIRST_COMPLETED)
            if self._ended.done():
                self._ended.result()
        finally:
            work.cancel()
        try:
            work.result()
        except Exception:
            self._end()
            raise

    def _end(self) -> None:
        if self in self._engine.open and self._caller is not None:
            last = self._last
            counts = (last.prompt_tokens, last.cached_tokens, last.completion_tokens)
            now_us = int(self._begun_s * 1e6)
            account = Account(
                last.finish,
                *counts,
                first_s=0.01,
                duration_s=0.03,
                begun_s=self._begun_s,
                times=PromptTimes(now_us + 1000, now_us + 3000, now_us + 9000),
                sampling=self._engine.asked[self.request - 1][1],
                request=self.request,
            )
            self._caller.replies.append(account)
        self._engine.open.discard(self)
        if not self._engine.open:
            self._engine.idle.set()

    def fail(self, error: EngineError) -> None:
        self._end()
        self._ended.set_exception(error)

    def written(self, size: int = 0) -> None:
        """Take no note."""

    def cancel(self) -> None:
        if self in self._engine.open:
            self._end()
            self._engine.cancelled.append(self.request)


class FakeEngine:
    def __init__(
        self,
        config: EngineConfig | None = None,
        *,
        on_event: Callable[[str], None] | None = None,
        script: Sequence[Iterable[Step]] = (HELLO,),
        accept: Sequence[Step] = (),
        start: Sequence[Step] = (),
    ) -> None:
        self.config = config or EngineConfig()
        self.on_event = on_event or (lambda _event: None)
        name = self.config.served_model_name or "fake-model"
        self.model = ModelConfig(path="/models/fake.gguf", served_name=name, max_model_len=2048)
        self.device = DEVICE_DEFAULTS["cpu"]
        self.checkpoint = Checkpoint()
        self.meter = Meter()
        self.ends = (EndId(2, "<|im_end|>", ("config.json", "chat template")),)
        self.script = list(script)
        self.accept = accept
        self.start_steps = start
        self.ready = False
        self.state = "starting"
        self.ok = True
        self.open: set[Stream] = set()
        self.idle = asyncio.Event()
        self.cancelled: list[int] = []
        self.asked: list[tuple[Prompt, SamplingParams, str, str]] = []
        self.closed = False
        self.recent = RecentCallers()

    @property
    def requests_open(self) -> int:
        return len(self.open)

    def begin(self) -> FakeEngine:
        """Be ready at once."""
        self.ready, self.state = True, "ready"
        return self

    async def start(self) -> None:
        self.on_event("loading weights 1/2")
        for step in self.start_steps:
            await act(step)
        self.on_event("loading weights 2/2")
        self.begin()

    def health(self) -> Health:
        return Health(self.ok, self.state, {"executor": Actor()})

    def load(self) -> Load:
        return Load(self.requests_open, 0, 1056)

    def ring_fill(self) -> dict[str, int]:
        return {"engine to tokenizer": 64}

    def find_caller(self, ident: str) -> Trail | None:
        return self.recent.find(ident)

    def generate(self, prompt: Prompt, sampling: SamplingParams, *, namespace: str, session: str) -> Stream:
        if self.state == "draining":
            raise EngineError("The server is stopping; send the request again.", status=503, code="draining")
        if not self.ready:
            raise EngineError("The model is still loading.", status=503, code="not_ready")
        steps = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        self.asked.append((prompt, sampling, namespace, session))
        self.recent.note(len(self.asked))
        stream = Stream(self, len(self.asked), steps)
        self.open.add(stream)
        return stream

    async def tokenize(self, prompt: Prompt, *, namespace: str) -> list[int]:
        """Return the bytes of a text, or of a conversation's JSON; token 1 stands for BOS."""
        match prompt:
            case Text():
                return [*([BOS] if prompt.add_special_tokens else []), *prompt.text.encode()]
            case Chat():
                return list(prompt.messages)
            case Ids():
                return unpack_ids(prompt.ids)

    async def detokenize(self, ids: Sequence[int], *, skip_special: bool = False) -> list[bytes]:
        if wrong := [token for token in ids if token >= VOCABULARY]:
            raise UserError(f"tokens has the token id {wrong[0]}; 0 to {VOCABULARY - 1} are allowed.", param="tokens")
        special = b"" if skip_special else b"<s>"
        return [special if token == BOS else bytes([token]) if token < 256 else b"?" for token in ids]

    async def flush_cache(self) -> int:
        return 5

    async def stats(self) -> SchedulerStats:
        return SchedulerStats(0, 0, self.requests_open, 4096, 4000, 90, 5, 1, 0, 17, 3)

    async def profile(self, seconds: float) -> Path:
        return Path(f"/run/profile-of-{seconds:g}-s")

    async def drain(self, timeout_s: float) -> None:
        self.state = "draining"
        if self.open:
            self.idle.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.idle.wait(), timeout_s)
        for stream in list(self.open):
            stream.fail(EngineError("The engine shut down.", status=503, code="draining"))

    async def close(self, *, at_once: bool = False) -> None:
        self.closed = True
