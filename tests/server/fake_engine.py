"""An engine driven by a script: the face of `tokenspeed.engine.AsyncEngine` without anything behind it.

A script is a list of steps for each reply in turn (the last one repeats): an `Output` is yielded, a
number waits that many seconds, an `Exception` is raised, an `asyncio.Event` is waited for.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from tokenspeed.config import EngineConfig, ModelConfig
from tokenspeed.errors import EngineError, StartError
from tokenspeed.messages.engine import SchedulerStats
from tokenspeed.messages.tokenizer import Prompt
from tokenspeed.sampling import SamplingParams


class Output(msgspec.Struct):
    text: str = ""
    ids: list[int] = []
    finish: str = ""
    stop_reason: str | None = None
    prompt_tokens: int = 7
    cached_tokens: int = 4
    completion_tokens: int = 0


class Health(msgspec.Struct):
    ok: bool
    state: str
    actors: dict[str, dict[str, Any]]


class Checkpoint(msgspec.Struct):
    path: Path = Path("/models/fake.gguf")
    architecture: str = "llama"
    parameters: int = 134_515_008
    weights_bytes: int = 98_362_432


Step = Output | float | Exception | asyncio.Event
HELLO: tuple[Step, ...] = (
    Output("Hel"),
    Output("lo"),
    Output(" wörld\n", finish="stop", completion_tokens=3),
)


class Stream:
    def __init__(self, engine: FakeEngine, request: int, accept: Sequence[Step], steps: Sequence[Step]) -> None:
        self.request = request
        self.cancelled = False
        self._engine = engine
        self._accept = accept
        self._gone = asyncio.Event()
        self._outputs = self._run(steps)

    async def accepted(self) -> None:
        for step in self._accept:
            await self._do(step)

    def __aiter__(self) -> AsyncIterator[Output]:
        return self._outputs

    async def _run(self, steps: Sequence[Step]) -> AsyncIterator[Output]:
        await self.accepted()
        for step in steps:
            if isinstance(step, Output):
                yield step
                if step.finish:
                    break
            else:
                await self._do(step)
        self._engine.open.discard(self)

    async def _do(self, step: Step) -> None:
        if isinstance(step, Exception):
            self._engine.open.discard(self)
            raise step
        if isinstance(step, asyncio.Event):
            await step.wait()
        elif isinstance(step, (int, float)):
            await asyncio.sleep(step)

    def cancel(self) -> None:
        if self in self._engine.open:
            self._engine.open.discard(self)
            self._engine.cancelled.append(self.request)


class FakeEngine:
    def __init__(
        self,
        config: EngineConfig | None = None,
        *,
        on_event: Callable[[str], None] | None = None,
        script: Sequence[Sequence[Step]] = (HELLO,),
        accept: Sequence[Step] = (),
        start: Sequence[Step] = (),
    ) -> None:
        self.config = config or EngineConfig()
        self.on_event = on_event or (lambda _event: None)
        self.model = ModelConfig(path="/models/fake.gguf", served_name="fake-model", max_model_len=2048)
        self.checkpoint = Checkpoint()
        self.script = list(script)
        self.accept = accept
        self.start_steps = start
        self.ready = False
        self.state = "starting"
        self.ok = True
        self.open: set[Stream] = set()
        self.cancelled: list[int] = []
        self.asked: list[tuple[Prompt, SamplingParams, str, str]] = []
        self.closed = False

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
            if isinstance(step, Exception):
                raise step
            if isinstance(step, asyncio.Event):
                await step.wait()
            elif isinstance(step, (int, float)):
                await asyncio.sleep(step)
        self.on_event("loading weights 2/2")
        self.begin()

    def health(self) -> Health:
        return Health(self.ok, self.state, {"executor": {"state": "up", "phase": "", "restarts": 0, "pid": 1}})

    def generate(
        self, prompt: Prompt, sampling: SamplingParams, *, namespace: str = "", session: str = ""
    ) -> Stream:
        if self.state == "draining":
            raise EngineError("The server is stopping; send the request again.", status=503, code="draining")
        if not self.ready:
            raise EngineError("The model is still loading; try again.", status=503, code="not_ready")
        steps = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        self.asked.append((prompt, sampling, namespace, session))
        stream = Stream(self, len(self.asked), self.accept, steps)
        self.open.add(stream)
        return stream

    async def flush_cache(self) -> int:
        return 5

    async def stats(self) -> SchedulerStats:
        return SchedulerStats(0, 0, self.requests_open, 4096, 4000, 90, 5, 0, 0, 17, 0)

    async def drain(self, timeout_s: float) -> None:
        self.state = "draining"
        loop = asyncio.get_running_loop()
        until_s = loop.time() + timeout_s
        while self.open and loop.time() < until_s:
            await asyncio.sleep(0.005)

    async def close(self) -> None:
        self.closed = True


StartFailure = StartError
