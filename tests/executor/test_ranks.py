"""Two ranks, driven by one plan through a broadcast ring, yield the ids of one."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.ipc.helpers import open_descriptors
from tests.llamas import Driver, executor_config, load, random_model, save_folder
from tokenspeed.actors.supervisor import ActorSpec, EdgeSpec, Supervisor
from tokenspeed.errors import StartError
from tokenspeed.executor.ranks import join_group
from tokenspeed.messages.base import Message, pack_ids, unpack_ids
from tokenspeed.messages.executor import ROW_SAMPLE, StepPlan
from tokenspeed.messages.scheduler import ExecutorReady, SchedulerMessage, StepFailed, StepResult

PROMPTS = [np.random.default_rng(4).integers(0, 260, size).tolist() for size in (7, 40)]
RANKS = ("executor", "executor-1")
RING_BYTES = 1 << 16
LIMIT_S = 60.0


def _script(driver: Driver) -> list[list[int]]:
    """Greedy and sampled requests, chunked, then both decoding in one step."""
    outputs = [driver.generate(1, PROMPTS[1], 12, chunk=16)]
    driver.open(2, temperature=0.9, top_p=0.9, seed=3)
    driver.open(3)
    outputs.append(driver.run((2, PROMPTS[0], 0, True), (3, PROMPTS[1], 0, True)))
    outputs += [driver.run((3, None, 40 + step, True), (2, None, 7 + step, True)) for step in range(8)]
    return outputs


class Ranks:
    """Two executor actors; the test is their scheduler.

    Plans go out once, for both. Only the first rank has an edge back: the second one would fail if
    it said anything.
    """

    def __init__(self, checkpoint: Path, rendezvous: Path) -> None:
        self._heard: asyncio.Queue[Message | str] = asyncio.Queue()
        settings = {"ranks": len(RANKS), "rendezvous": str(rendezvous)}
        self.supervisor = Supervisor(
            [
                ActorSpec(
                    name,
                    "tokenspeed.actors.executor:ExecutorActor",
                    executor_config(checkpoint, rank=rank, **settings),
                    LIMIT_S,
                )
                for rank, name in enumerate(RANKS)
            ],
            [EdgeSpec("scheduler", RANKS, RING_BYTES), EdgeSpec(RANKS[0], ("scheduler",), RING_BYTES)],
            "scheduler",
            stall_limit_s=LIMIT_S,
            on_message=lambda sender, message: self._heard.put_nowait(message),
            on_restart=lambda actor, epoch: self._heard.put_nowait(f"{actor} died"),
            on_event=lambda text: None,
            receives={RANKS[0]: SchedulerMessage},
        )

    async def answer(self) -> Message | str:
        """Return what came next, a text if an actor died."""
        return await asyncio.wait_for(self._heard.get(), LIMIT_S)

    async def run(self, plans: Sequence[StepPlan]) -> list[Message | str]:
        """Send `plans`, each while the one before it is computed, and return the answers."""
        answers = []
        for ahead, plan in enumerate(plans):
            self.supervisor.outbox.send(RANKS[0], plan)
            if ahead:
                answers.append(await self.answer())
        return [*answers, await self.answer()]


async def _drive(checkpoint: Path, rendezvous: Path, plans: Sequence[StepPlan]) -> list[Message | str]:
    """Return everything that two ranks say from their start to the last of `plans`."""
    ranks = Ranks(checkpoint, rendezvous)
    await ranks.supervisor.start()
    try:
        return [await ranks.answer(), *await ranks.run(plans)]
    finally:
        await ranks.supervisor.stop()


@pytest.mark.parametrize(
    ("family", "biases"), [("Llama", {"attention_bias": True, "mlp_bias": True}), ("Qwen2", {}), ("Qwen3", {})]
)
def test_two_ranks_equal_one(
    family: str, biases: dict[str, bool], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each rank holds half of the heads; plans written for one that holds them all bring the same ids.

    The ranks share the vocabulary out as well: if the second one drew another id than the first,
    what follows would differ.
    """
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    checkpoint = save_folder(random_model(family, vocab_size=260, **biases), tmp_path / "checkpoint")
    whole = load(checkpoint)
    driver = Driver(whole)
    wanted = _script(driver)
    # Nobody has opened slot 5: both ranks refuse the plan, one says so, and nothing has happened.
    refused = StepPlan(0, [], b"", pack_ids([5, 1, 0, ROW_SAMPLE]), pack_ids([1]))

    descriptors = open_descriptors()
    ready, failed, *answers = asyncio.run(_drive(checkpoint, tmp_path / "rendezvous", [refused, *driver.plans]))

    assert isinstance(ready, ExecutorReady)
    # Half of the heads: pages take half of the bytes, so that twice as many fit.
    assert ready.pages_total[0] in (2 * whole.pages_total[0], 2 * whole.pages_total[0] + 1)
    assert isinstance(failed, StepFailed), failed
    assert "slot 5" in failed.message
    assert _ids(answers) == [token for ids in wanted for token in ids]
    assert open_descriptors() == descriptors
    assert os.listdir(tmp_path / "tokenspeed") == []


def _ids(answers: Sequence[Message | str]) -> list[int]:
    ids = []
    for answer in answers:
        assert isinstance(answer, StepResult), answer
        ids += unpack_ids(answer.ids)
    return ids


def test_ranks_need_a_place_to_meet(tmp_path: Path) -> None:
    """Without a file, or in a folder that is not there, the message names the place."""
    with pytest.raises(StartError, match="2 ranks need a rendezvous file"):
        join_group(0, 2, "")
    with pytest.raises(StartError, match=r"Rank 1 of 2 is to meet the others at .*/absent/file"):
        join_group(1, 2, str(tmp_path / "absent" / "file"))
