"""What the supervisor keeps about one actor, over all its lives.

Owns the actor's specification, its restarts and its line in the status page. Deciding is the
supervisor's; this file answers how the actor is.
"""

from __future__ import annotations

import msgspec

from tokenspeed.actors.control import Launch
from tokenspeed.actors.edges import Ends, split_ends
from tokenspeed.actors.health import KILL_LIMIT_S, ActorHealth, RestartBudget, State, start_overdue, turn_overdue
from tokenspeed.actors.life import Keeper, Life
from tokenspeed.observe.logs import form_in_use
from tokenspeed.observe.page import StatusLine, Word, now_us

FIRST_PHASE = "process starts"


class ActorSpec(msgspec.Struct, frozen=True):
    """An actor to be run: `factory` is `package.module:Class`, `config` the struct that it is given.

    Its first phase must be over within `start_limit_s`; the phases that it announces have limits of
    their own.
    """

    name: str
    factory: str
    config: msgspec.Struct
    start_limit_s: float = 30.0


class Charge:
    """One actor in the supervisor's care."""

    def __init__(self, spec: ActorSpec, index: int, line: StatusLine) -> None:
        self.spec = spec
        self.index = index
        self.line = line
        self.budget = RestartBudget()
        self.state = State.STARTING
        self.phase = FIRST_PHASE
        self.restarts = 0
        self.error = ""
        self.frozen_us = 0
        self.missed: list[tuple[str, int]] = []  # peers that restarted while it had no process, and epochs
        self.life: Life | None = None

    @property
    def name(self) -> str:
        """Return the actor's name."""
        return self.spec.name

    @property
    def running_life(self) -> Life | None:
        """Return the present life, None if there is none."""
        return self.life if self.life is not None and self.life.running else None

    def begin(self, keeper: Keeper, page_fd: int, trace_fd: int, ends: Ends, log_level: int) -> None:
        """Begin a life with these ends. OSError if the system gives no process."""
        self.phase = FIRST_PHASE
        self.line.begin(now_us(), int(self.spec.start_limit_s * 1e6))
        self.life = Life.begin(self.name, keeper)
        grants, descriptors = split_ends(ends)
        config = self.spec.config
        launch = Launch(
            actor=self.name,
            factory=self.spec.factory,
            config_type=f"{type(config).__module__}:{type(config).__qualname__}",
            config=msgspec.msgpack.encode(config),
            log_level=log_level,
            log_form=form_in_use(),
            line=self.index,
            grants=grants,
            restarted=self.missed,
        )
        self.life.launch(launch, [page_fd, trace_fd, *descriptors])
        self.missed = []

    def overdue(self, now: int, awake_since_us: int, stall_limit_us: int) -> str | None:
        """Return what is wrong if the running life has given no sign for too long."""
        life = self.running_life
        if life is None or self.state is State.DEAD:
            return None
        if self.state is State.FROZEN:
            stuck = now - self.frozen_us > KILL_LIMIT_S * 1e6
            return f"process {life.pid} does not die when killed; a device driver may hold it" if stuck else None
        if life.opened:
            silent_s = turn_overdue(self.line, now, awake_since_us, stall_limit_us)
            return None if silent_s is None else f"frozen, its loop has not turned for {silent_s:.1f} s"
        silent_s = start_overdue(self.line, now, awake_since_us, stall_limit_us)
        return None if silent_s is None else f"stuck in {self.phase!r}, no news for {silent_s:.1f} s"

    def freeze(self) -> None:
        """Note that the actor was found frozen."""
        self.state = State.FROZEN
        self.frozen_us = now_us()

    def health(self) -> ActorHealth:
        """Return how the actor is."""
        life = self.running_life
        turn_age_s = (now_us() - self.line[Word.TURNED_US]) / 1e6 if life else 0.0
        return ActorHealth(self.state, self.phase, life.pid if life else 0, self.restarts, turn_age_s, self.error)
