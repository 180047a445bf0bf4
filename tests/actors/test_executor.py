"""The executor actor between its neighbours' messages, with an executor that obeys the test."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.actors.said import Said, quiet
from tokenspeed.actors import executor as module
from tokenspeed.actors.executor import ExecutorActor
from tokenspeed.config import ExecutorConfig, ModelConfig
from tokenspeed.errors import EngineError, UserError
from tokenspeed.executor.face import StepOutcome
from tokenspeed.ipc.wakeup import clear_wakeup, create_wakeup, signal_wakeup
from tokenspeed.kernel_slices import KernelSlice, read_slices
from tokenspeed.messages.base import Message
from tokenspeed.messages.executor import StepPlan
from tokenspeed.messages.scheduler import ExecutorReady, StepFailed, StepResult

READY = ExecutorReady(16, (64,), 17, 259)
LIMIT_S = 0.2


class Puppet:
    """An executor whose steps end when the test says so."""

    page_tokens, pages_total, slots, vocab_tokens = 16, (64,), 17, 259

    def __init__(self) -> None:
        self.submitted: list[int] = []
        self.forgotten = 0
        self.closed = False
        self.refuses = False
        self._outcomes: list[StepOutcome] = []
        self._wakeup = create_wakeup()

    def end(self, step: int, failure: str = "", step_us: int = 7) -> None:
        """Let `step` have its outcome."""
        self._outcomes.append(StepOutcome(step, step_us, b"", b"", failure))
        signal_wakeup(self._wakeup)

    def submit(self, plan: StepPlan) -> None:
        """Note the step."""
        self.submitted.append(plan.step)

    def fileno(self) -> int:
        """Return the eventfd."""
        return self._wakeup

    def collect(self) -> list[StepOutcome]:
        """Return what has ended."""
        clear_wakeup(self._wakeup)
        outcomes, self._outcomes = self._outcomes, []
        return outcomes

    def forget(self) -> None:
        """Drop what has ended."""
        self.forgotten += 1
        self._outcomes.clear()

    def begin_profile(self) -> None:
        """Refuse, if told to."""
        if self.refuses:
            raise UserError("no kernels here", code="no_profile")

    def end_profile(self) -> list[KernelSlice]:
        """Return one kernel."""
        return [KernelSlice("matmul", 1, 2, 7)]

    def close(self) -> None:
        """Note it."""
        self.closed = True
        os.close(self._wakeup)


class Scene:
    """An actor on stage: what it says, and the errors that its loop caught."""

    def __init__(self, rank: int) -> None:
        self.said = Said()
        self.puppet = Puppet()
        self.errors: list[str] = []
        model = ModelConfig(path="", served_name="", max_model_len=64)
        self.actor = ExecutorActor(ExecutorConfig(model=model, rank=rank), self.said, quiet)

    def plan(self, *steps: int) -> None:
        """Send plans."""
        for step in steps:
            self.actor.receive("scheduler", StepPlan(step, [], b"", b"", b""))

    def heard(self) -> list[Message]:
        """Return what the scheduler heard since the last look."""
        heard = [message for receiver, message in self.said.all if receiver == "scheduler"]
        self.said.all.clear()
        return heard

    async def turn(self) -> None:
        """Let the loop run what is due."""
        await asyncio.sleep(0.01)


def play(monkeypatch: pytest.MonkeyPatch, act: Callable[[Scene], Awaitable[None]], rank: int = 0) -> None:
    """Start an actor, play `act` and stop the actor."""

    async def main() -> None:
        scene = Scene(rank)
        monkeypatch.setattr(module, "load_executor", lambda config, progress, trace: scene.puppet)
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda loop, context: scene.errors.append(str(context.get("exception"))))
        await scene.actor.start()
        await act(scene)
        await scene.actor.stop()
        assert scene.puppet.closed

    asyncio.run(main())


def test_each_plan_is_answered_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several in flight; a failure in its turn."""

    async def act(scene: Scene) -> None:
        assert scene.heard() == [READY]
        scene.plan(1, 2, 3)
        assert scene.puppet.submitted == [1, 2, 3]
        await scene.turn()
        assert scene.heard() == []
        scene.puppet.end(1)
        await scene.turn()
        assert scene.heard() == [StepResult(1, 7, b"", b"")]
        scene.puppet.end(2, "EngineError: no page")
        scene.puppet.end(3)
        await scene.turn()
        assert scene.heard() == [StepFailed(2, "EngineError: no page"), StepResult(3, 7, b"", b"")]

    play(monkeypatch, act)


def test_only_the_first_rank_speaks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others work in silence."""

    async def act(scene: Scene) -> None:
        scene.plan(1)
        scene.puppet.end(1)
        await scene.turn()
        assert scene.puppet.submitted == [1]
        assert scene.heard() == []

    play(monkeypatch, act, rank=1)


def test_a_new_scheduler_hears_nothing_of_the_old_ones_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """The executor forgets them; the new life begins with what there is."""

    async def act(scene: Scene) -> None:
        scene.plan(1, 2)
        scene.puppet.end(1)
        scene.actor.peer_restarted("scheduler", 2)
        await scene.turn()
        assert scene.puppet.forgotten == 1
        assert scene.heard() == [READY, READY]
        scene.plan(1)
        scene.puppet.end(1)
        await scene.turn()
        assert scene.heard() == [StepResult(1, 7, b"", b"")]

    play(monkeypatch, act)


def hung(monkeypatch: pytest.MonkeyPatch, act: Callable[[Scene], Awaitable[None]]) -> None:
    """Play with a short limit for steps."""
    monkeypatch.setattr(module, "STEP_LIMIT_S", LIMIT_S)
    play(monkeypatch, act)


def test_the_oldest_step_has_its_time_from_the_end_of_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two in flight, each a little faster than the limit: nobody hangs; then the third one does."""

    async def act(scene: Scene) -> None:
        scene.plan(1, 2, 3)
        for step in (1, 2):
            await asyncio.sleep(LIMIT_S * 0.6)
            scene.puppet.end(step)
        await asyncio.sleep(LIMIT_S * 0.6)
        assert scene.errors == []
        await asyncio.sleep(LIMIT_S)
        assert scene.errors == ["A step has not come back in time."]

    hung(monkeypatch, act)


def test_nothing_in_flight_is_nothing_to_wait_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither before the first plan nor after the last answer."""

    async def act(scene: Scene) -> None:
        await asyncio.sleep(LIMIT_S * 1.5)
        scene.plan(1)
        scene.puppet.end(1)
        await asyncio.sleep(LIMIT_S * 1.5)
        scene.plan(2)
        scene.actor.peer_restarted("scheduler", 2)
        await asyncio.sleep(LIMIT_S * 2.5)
        assert scene.errors == []

    hung(monkeypatch, act)


def test_long_steps_raise_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four times the longest one so far."""

    async def act(scene: Scene) -> None:
        scene.plan(1, 2)
        scene.puppet.end(1, step_us=int(LIMIT_S * 0.5e6))
        await asyncio.sleep(LIMIT_S * 1.5)
        assert scene.errors == []
        await asyncio.sleep(LIMIT_S)
        assert len(scene.errors) == 1

    hung(monkeypatch, act)


def test_forgotten_steps_may_take_their_time_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first plan of a new scheduler waits behind the old one's step in hand, which tells of no end."""

    async def act(scene: Scene) -> None:
        scene.plan(1)
        scene.actor.peer_restarted("scheduler", 2)
        scene.plan(1, 2)
        await asyncio.sleep(LIMIT_S * 1.5)
        scene.puppet.end(1)
        await asyncio.sleep(LIMIT_S * 0.6)
        assert scene.errors == []
        await asyncio.sleep(LIMIT_S)
        assert len(scene.errors) == 1

    hung(monkeypatch, act)


def test_one_profile_at_a_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """While it is made another one is refused; the leave that it takes of the watch ends with it, whatever its end."""
    announced: list[tuple[str, float]] = []

    async def act(scene: Scene) -> None:
        scene.actor._phase = lambda text, limit_s: announced.append((text, limit_s))
        making = asyncio.create_task(scene.actor.profile(0.02, tmp_path / "first"))
        await asyncio.sleep(0)
        with pytest.raises(EngineError, match="is being made") as refused:
            await scene.actor.profile(0.01, tmp_path / "second")
        assert refused.value.status == 409
        await making
        assert read_slices(tmp_path / "first") == [KernelSlice("matmul", 1, 2, 7)]
        scene.puppet.refuses = True
        with pytest.raises(UserError, match="no kernels here"):
            await scene.actor.profile(0.01, tmp_path / "third")
        assert [limit_s > 0 for _, limit_s in announced] == [True, False, True, False]

    play(monkeypatch, act)
