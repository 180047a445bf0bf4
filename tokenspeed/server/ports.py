"""What the doors ask of an engine.

Owns the shape alone: `tokenspeed.engine.AsyncEngine` has it, and so has the scripted engine of the
tests. The doors know nothing else of the engine, its actors or its model.

Invariant: nothing here is called from a thread other than the event loop's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from tokenspeed.config import DeviceSettings, ModelConfig
<<<<<<< HEAD
from tokenspeed.engine import batch
from tokenspeed.engine.meter import Meter
from tokenspeed.engine.reply import OutputLike
from tokenspeed.messages.engine import SchedulerStats
=======
from tokenspeed.messages.engine import EndId, SchedulerStats
>>>>>>> main
from tokenspeed.messages.tokenizer import Prompt
from tokenspeed.sampling import SamplingParams

StreamLike = batch.StreamLike[OutputLike]


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


class EngineLike(Protocol):
    """An engine in the process of the doors."""

    @property
    def model(self) -> ModelConfig: ...
    @property
    def device(self) -> DeviceSettings: ...
    @property
    def checkpoint(self) -> CheckpointLike: ...
    @property
<<<<<<< HEAD
    def meter(self) -> Meter: ...
=======
    def ends(self) -> tuple[EndId, ...]: ...
>>>>>>> main
    @property
    def ready(self) -> bool: ...
    @property
    def requests_open(self) -> int: ...

    async def start(self) -> None: ...
    def health(self) -> HealthLike: ...
    def generate(self, prompt: Prompt, sampling: SamplingParams, *, namespace: str, session: str) -> StreamLike: ...
    async def tokenize(self, prompt: Prompt) -> list[int]: ...
    async def detokenize(self, ids: Sequence[int], *, skip_special: bool = False) -> list[bytes]: ...
    async def flush_cache(self) -> int: ...
    async def stats(self) -> SchedulerStats: ...
    async def drain(self, timeout_s: float) -> None: ...
    async def close(self, *, at_once: bool = False) -> None: ...
