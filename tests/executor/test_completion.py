"""The step thread: order, failures, and the ends of lives."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from tests.ipc.helpers import open_descriptors, readable
from tokenspeed.errors import EngineError
from tokenspeed.executor.completion import StepIds, StepThread
from tokenspeed.executor.face import StepOutcome

LIMIT_S = 10.0


@pytest.fixture
def thread() -> Iterator[StepThread]:
    """A fresh one."""
    thread = StepThread()
    yield thread
    thread.close()


def collect(thread: StepThread, count: int) -> list[StepOutcome]:
    """Wait for `count` outcomes."""
    seen: list[StepOutcome] = []
    while len(seen) < count:
        assert readable(thread.fileno(), LIMIT_S)
        seen += thread.collect()
    return seen


def numbered(number: int) -> StepIds:
    """Return ids that tell of `number`."""
    return StepIds(b"\1", bytes([number]))


class Noted:
    """A step that notes its number in `ran`."""

    def __init__(self, ran: list[int], number: int) -> None:
        self._ran, self._number = ran, number

    def __call__(self) -> StepIds:
        """Run the step."""
        self._ran.append(self._number)
        return numbered(self._number)


class Gate:
    """A step that begins, and ends when it is let."""

    def __init__(self) -> None:
        self.begun, self.open = threading.Event(), threading.Event()

    def __call__(self) -> StepIds:
        """Run the step."""
        self.begun.set()
        assert self.open.wait(LIMIT_S)
        return numbered(0)


def test_outcomes_come_in_order(thread: StepThread) -> None:
    """A failure is one of them; the descriptor is readable while some wait."""

    def fail() -> StepIds:
        raise EngineError("no such page")

    assert not readable(thread.fileno())
    thread.submit(1, lambda: numbered(1))
    thread.submit(2, fail)
    thread.submit(3, lambda: numbered(3))
    seen = collect(thread, 3)
    assert [(each.step, each.counts, each.ids, each.failure) for each in seen] == [
        (1, b"\1", b"\1", ""),
        (2, b"", b"", "EngineError: no such page"),
        (3, b"\1", b"\3", ""),
    ]
    assert thread.collect() == []
    assert not readable(thread.fileno())


def test_the_time_of_a_step_is_its_own(thread: StepThread) -> None:
    """Waiting behind another one does not count."""

    def slow() -> StepIds:
        time.sleep(0.05)
        return numbered(1)

    for step in range(3):
        thread.submit(step, slow)
    begin = time.monotonic()
    seen = collect(thread, 3)
    assert all(outcome.step_us >= 50_000 for outcome in seen)
    assert sum(outcome.step_us for outcome in seen) <= (time.monotonic() - begin + 0.05) * 1e6


def test_a_life_ends_at_once(thread: StepThread) -> None:
    """What is done, in hand or waiting at that moment is never told; what comes later is."""
    ran: list[int] = []
    thread.submit(1, lambda: numbered(1))
    assert readable(thread.fileno(), LIMIT_S)
    gate = Gate()
    thread.submit(2, gate)
    thread.submit(3, Noted(ran, 3))
    assert gate.begun.wait(LIMIT_S)
    thread.forget()
    thread.submit(4, lambda: numbered(4))
    gate.open.set()
    assert [outcome.step for outcome in collect(thread, 1)] == [4]
    assert ran == []


def test_call_runs_behind_the_steps_and_returns(thread: StepThread) -> None:
    """In the same thread, with its exceptions."""

    def fail() -> None:
        raise KeyError("name")

    ran: list[int] = []
    thread.submit(1, Noted(ran, 1))
    assert thread.call(lambda: (list(ran), threading.current_thread().name)) == ([1], "step")
    with pytest.raises(KeyError, match="name"):
        thread.call(fail)


def test_close_waits_for_the_step_in_hand_alone() -> None:
    """The others never run, and no descriptor is left."""
    before = open_descriptors()
    thread = StepThread()
    gate = Gate()
    ran: list[int] = []
    thread.submit(1, gate)
    thread.submit(2, Noted(ran, 2))
    assert gate.begun.wait(LIMIT_S)
    threading.Timer(0.02, gate.open.set).start()
    thread.close()
    assert gate.open.is_set()
    assert ran == []
    assert open_descriptors() == before
