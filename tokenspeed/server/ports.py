"""What the doors ask of an engine.

Owns the shape alone: `tokenspeed.engine.AsyncEngine` has it, and so has the scripted engine of the
tests. The doors know nothing else of the engine, its actors or its model.

Invariant: nothing here is called from a thread other than the event loop's.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any, Protocol

from tokenspeed.config import DeviceSettings, ModelConfig
from tokenspeed.messages.engine import EndId, SchedulerStats
from tokenspeed.messages.tokenizer import Prompt
from tokenspeed.sampling import SamplingParams


class OutputLike(Protocol):
    """New text and ids of one reply; `finish` is "" while it goes on, else "stop" or "length"."""

    @property
    def text(self) -> str: ...
    @property
    def finish(self) -> str: ...
    @property
    def stop_reason(self) -> str | int | None: ...
    @property
    def prompt_tokens(self) -> int: ...
    @property
    def cached_tokens(self) -> int: ...
    @property
    def completion_tokens(self) -> int: ...


class StreamLike(Protocol):
    """One reply. Awaiting and iterating raise `UserError` or `EngineError`."""

    @property
    def request(self) -> int: ...

    async def accepted(self) -> None:
        """Return when the scheduler has taken the request: from here on the caller did nothing wrong."""

    def __aiter__(self) -> AsyncIterator[OutputLike]: ...

    def cancel(self) -> None:
        """End the reply now, in whatever state it is; a second call does nothing."""


class HealthLike(Protocol):
    """`state` is "starting", "ready", "draining", "degraded" or "lost"; `actors` tells of each by name."""

    @property
    def ok(self) -> bool: ...
    @property
    def state(self) -> str: ...
    @property
    def actors(self) -> Mapping[str, Any]: ...


class CheckpointLike(Protocol):
    """What the start banner tells of the weights."""

    @property
    def path(self) -> Any: ...
    @property
    def architecture(self) -> str: ...
    @property
    def parameters(self) -> int: ...
    @property
    def weights_bytes(self) -> int: ...
    @property
    def types(self) -> tuple[str, ...]: ...


class EngineLike(Protocol):
    """An engine in the process of the doors."""

    @property
    def model(self) -> ModelConfig: ...
    @property
    def device(self) -> DeviceSettings: ...
    @property
    def checkpoint(self) -> CheckpointLike: ...
    @property
    def ends(self) -> tuple[EndId, ...]: ...
    @property
    def ready(self) -> bool: ...
    @property
    def requests_open(self) -> int: ...

    async def start(self) -> None: ...
    def health(self) -> HealthLike: ...
    def generate(self, prompt: Prompt, sampling: SamplingParams, *, namespace: str, session: str) -> StreamLike: ...
    async def flush_cache(self) -> int: ...
    async def stats(self) -> SchedulerStats: ...
    async def drain(self, timeout_s: float) -> None: ...
    async def close(self, *, at_once: bool = False) -> None: ...
