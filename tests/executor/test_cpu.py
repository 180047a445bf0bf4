"""What only the CPU's executor has: a step that blocks, and memory that a test can damage."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.llamas import Driver, executor_config, random_llama, save_folder
from tokenspeed.errors import EngineError
from tokenspeed.executor.cpu import CpuExecutor
from tokenspeed.messages.base import pack_ids, unpack_ids
from tokenspeed.messages.executor import ROW_DECODE, ROW_SAMPLE, StepPlan
from tokenspeed.messages.scheduler import ROW_FAILED

PROMPT = [5, 6, 7]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random checkpoint."""
    return save_folder(random_llama(), tmp_path_factory.mktemp("llama") / "checkpoint")


@pytest.fixture
def executor(folder: Path) -> Iterator[CpuExecutor]:
    """A fresh one."""
    executor = CpuExecutor.load(executor_config(folder), lambda phase, share: None)
    yield executor
    executor.close()


def test_a_step_in_the_callers_thread(executor: CpuExecutor) -> None:
    """The same plan brings the same ids as one that is submitted; a refusal is an exception."""
    driver = Driver(executor)
    wanted = driver.generate(1, PROMPT, 1)
    [plan] = driver.plans
    out = executor.step(plan)
    assert (unpack_ids(out.counts), unpack_ids(out.ids)) == ([1], wanted)
    with pytest.raises(EngineError, match="slot 7 has no page") as caught:
        executor.step(StepPlan(2, [], b"", pack_ids([7, 1, 0, ROW_SAMPLE]), pack_ids([1])))
    assert caught.value.code == "bad_plan"


def test_damaged_pages_are_noticed(executor: CpuExecutor) -> None:
    """Numbers that are not finite end the row and not the executor."""
    driver = Driver(executor)
    driver.open(1)
    driver.run((1, PROMPT, 0, True))
    with torch.inference_mode():
        executor._pages.layers[0].keys.fill_(float("nan"))
    damaged = executor.step(StepPlan(2, [], b"", pack_ids([1, 1, 3, ROW_DECODE | ROW_SAMPLE]), b""))
    assert (unpack_ids(damaged.counts), damaged.ids) == ([ROW_FAILED], b"")
    with torch.inference_mode():
        executor._pages.layers[0].keys.zero_()
    assert len(driver.run((1, None, 3, True))) == 1


def test_progress_is_told_to_its_end(folder: Path) -> None:
    """Phases come with rising shares, the warm-up last."""
    told: list[tuple[str, float]] = []
    CpuExecutor.load(executor_config(folder), lambda phase, share: told.append((phase, share))).close()
    assert told[0] == ("read the checkpoint", 0.0)
    assert told[-1] == ("warm up", 1.0)
