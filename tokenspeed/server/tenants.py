"""What keeps the tenants of one engine apart.

Owns the way from a tenant and what it calls its caches and sessions to the namespaces of the engine.
Doors in front of `TenantEngine` cannot forget it: everything they ask goes through here. Knows no
keys and no routes.

Invariant: two tenants never have a namespace or a session in common, whatever names they send.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path

from tokenspeed.caller import Trail
from tokenspeed.config import DeviceSettings, EngineConfig, ModelConfig
from tokenspeed.engine.meter import Meter
from tokenspeed.messages.engine import EndId, SchedulerStats
from tokenspeed.messages.tokenizer import Prompt
from tokenspeed.sampling import SamplingParams
from tokenspeed.server.ports import CheckpointLike, EngineLike, HealthLike, LoadLike, StreamLike

NOBODY = ""  # the tenant of a server without keys, and of the Unix socket
NAME_BYTES = 16

# Set by the doorman for the task of one request, and so for everything that is called in it.
tenant_of_request: ContextVar[str] = ContextVar("tenant_of_request", default=NOBODY)


class TenantEngine:
    """`engine` as the tenant of the present request sees it."""

    def __init__(self, engine: EngineLike) -> None:
        self._engine = engine
        self._secret = secrets.token_bytes(32)  # nobody can work out a name that is not his

    def generate(self, prompt: Prompt, sampling: SamplingParams, *, namespace: str, session: str) -> StreamLike:
        """Open a request in the tenant's part of `namespace` and `session`."""
        return self._engine.generate(
            prompt, sampling, namespace=self.namespace(namespace), session=self._session(session)
        )

    def namespace(self, salt: str) -> str:
        """Return the tenant's namespace for caches; "" where there is one tenant and no `salt`."""
        return self._name("cache", salt) if salt or tenant_of_request.get() != NOBODY else ""

    def _session(self, asked: str) -> str:
        return self._name("session", asked) if asked else ""  # each request without one is its own session

    def _name(self, kind: str, asked: str) -> str:
        parts = "\0".join((kind, tenant_of_request.get(), asked))  # neither kind nor tenant has a NUL
        return hmac.digest(self._secret, parts.encode("utf-8", "surrogatepass"), "sha256")[:NAME_BYTES].hex()

    # The rest is the same for everybody.

    @property
    def config(self) -> EngineConfig:
        """How the engine was set up."""
        return self._engine.config

    @property
    def model(self) -> ModelConfig:
        """The model served."""
        return self._engine.model

    @property
    def device(self) -> DeviceSettings:
        """The device it is computed on."""
        return self._engine.device

    @property
    def checkpoint(self) -> CheckpointLike:
        """Where its weights come from."""
        return self._engine.checkpoint

    @property
    def ends(self) -> tuple[EndId, ...]:
        """The ids that end a reply."""
        return self._engine.ends

    @property
    def ready(self) -> bool:
        """Whether requests are taken."""
        return self._engine.ready

    @property
    def requests_open(self) -> int:
        """Requests of all tenants; not to be told to one."""
        return self._engine.requests_open

    @property
    def meter(self) -> Meter:
        """Counts over all tenants; not to be told to one."""
        return self._engine.meter

    async def tokenize(self, prompt: Prompt, *, namespace: str) -> list[int]:
        """Return the ids of `prompt` in the tenant's part of `namespace`."""
        return await self._engine.tokenize(prompt, namespace=self.namespace(namespace))

    async def detokenize(self, ids: Sequence[int], *, skip_special: bool = False) -> list[bytes]:
        """Return what each of `ids` adds to a text."""
        return await self._engine.detokenize(ids, skip_special=skip_special)

    async def start(self) -> None:
        """Start the engine."""
        await self._engine.start()

    def health(self) -> HealthLike:
        """Return the engine's state."""
        return self._engine.health()

    def load(self) -> LoadLike:
        """Return how many requests of all tenants are open; not to be told to one."""
        return self._engine.load()

    def ring_fill(self) -> Mapping[str, int]:
        """Return the bytes that wait between the engine's processes."""
        return self._engine.ring_fill()

    def find_caller(self, ident: str) -> Trail | None:
        """Return the requests of a caller of any tenant; not to be told to one."""
        return self._engine.find_caller(ident)

    async def flush_cache(self) -> int:
        """Forget the cached pages of all tenants."""
        return await self._engine.flush_cache()

    async def stats(self) -> SchedulerStats:
        """Return counters over all tenants; not to be told to one."""
        return await self._engine.stats()

    async def profile(self, seconds: float) -> Path:
        """Observe the GPU's kernels."""
        return await self._engine.profile(seconds)

    async def drain(self, timeout_s: float) -> None:
        """Take no more requests and wait for the open ones."""
        await self._engine.drain(timeout_s)

    async def close(self, *, at_once: bool = False) -> None:
        """Stop the engine."""
        await self._engine.close(at_once=at_once)
