"""The GPU's times on the host's clock, with a GPU whose clock runs fast and whose ends are known late."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tokenspeed.executor.cuda import clock
from tokenspeed.executor.cuda.clock import StepClock
from tokenspeed.points import Kind

STEP_NS = 4_000_000
WAKE_US = 90.0
DRIFT = 40e-6  # a GPU's clock against the host's: 144 ms an hour


class World:
    """True time, and what was noted."""

    now_ns = 1_000_000_000
    noted: list[tuple[int, int, int]]


class Event:
    """A timing event; its clock began at another time and runs fast."""

    def __init__(self, world: World, **_: bool) -> None:
        self._world = world
        self._gpu_ns = 0.0

    def record(self) -> None:
        """Take the time of the GPU."""
        self._gpu_ns = 7e12 + self._world.now_ns * (1 + DRIFT)

    def synchronize(self) -> None:
        """Nothing is under way."""

    def elapsed_time(self, later: Event) -> float:
        """Return milliseconds."""
        return (later._gpu_ns - self._gpu_ns) / 1e6


class Trace:
    """Keeps points with their times."""

    def __init__(self, world: World) -> None:
        self._world = world
        world.noted = []

    def point(self, *_: int) -> None:
        """Keep nothing of the host's."""

    def point_at(self, time_ns: int, kind: int, _: int, step: int) -> None:
        """Keep a time of the GPU."""
        self._world.noted.append((time_ns, kind, step))


def test_times_follow_the_host_s_clock_however_the_gpu_s_drifts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over 20 minutes of steps, each known 90 to 200 us late, no time is off by more than the drift of a window."""
    world, rng = World(), random.Random(3)
    monkeypatch.setattr(clock._cuda, "Event", lambda **options: Event(world, **options))
    trace: Any = Trace(world)
    timer = StepClock(trace, WAKE_US * 1e3)
    for step in range(1, 5000):
        world.now_ns += rng.choice((2_000, 900_000, 400_000_000 if step % 100 == 0 else 0))
        begin_ns = world.now_ns
        mark = timer.begin()
        timer.uploaded(step)
        world.now_ns += STEP_NS
        end_ns = world.now_ns
        timer.end(mark, step)
        known_us = (end_ns + (WAKE_US + rng.expovariate(1 / 12)) * 1e3) / 1e3
        timer.read(mark, step, int(known_us))
        (begun, first, _), (ended, second, told) = world.noted[-2:]
        assert (first, second, told) == (Kind.COMPUTE_BEGIN, Kind.COMPUTE_END, step)
        assert ended < known_us * 1e3
        if step > 64:
            assert abs(ended - end_ns) < 45_000, step
            assert abs(begun - begin_ns) < 45_000, step
