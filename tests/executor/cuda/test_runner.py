"""The GPU's step over interpreted kernels gives the ids of the CPU executor for the same plans."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenspeed_kernels import selector

from tests.llamas import Driver, executor_config, load, random_model, save_folder
from tokenspeed.errors import EngineError
from tokenspeed.executor.batch import Plan
from tokenspeed.executor.cuda.runner import StepRunner
from tokenspeed.executor.pools import PageShape
from tokenspeed.messages.base import pack_ids
from tokenspeed.messages.executor import ROW_DECODE, ROW_SAMPLE, StepPlan
from tokenspeed.model.build import declare_model
from tokenspeed.model.placement import OneRank

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="tests/gpu runs the executor itself")

NUMBERS = np.random.default_rng(8)
PROMPTS = [NUMBERS.integers(0, 259, size).tolist() for size in (1, 7, 12, 20)]
ROWS = 4


class NoEvent:
    """What ends a step: here it has ended when it returns."""

    def record(self) -> None:
        """Do nothing."""


@pytest.fixture(scope="module", params=["Llama", "Qwen3"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random checkpoint whose heads the kernels take."""
    model = random_model(request.param, hidden_size=64, head_dim=16, num_hidden_layers=2)
    return save_folder(model, tmp_path_factory.mktemp("model") / "checkpoint")


@pytest.fixture
def runner(folder: Path, monkeypatch: pytest.MonkeyPatch) -> StepRunner:
    """A runner whose device is the CPU and whose kernels are the GPU's."""
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
    # Nothing newer: the interpreter has no early starts.
    kernels = selector("cuda", capability=(8, 0))
    config = executor_config(folder, max_num_seqs=ROWS, chunked_prefill_size=48)
    declared = declare_model(str(folder), 256, torch.float32, kernels, OneRank())
    shape = declared.shape
    page = PageShape(shape.layers, 16, declared.kv_heads, shape.head_dim, torch.float32)
    stream: Any = None
    with torch.inference_mode():
        runner = StepRunner(declared.load(lambda phase, share: None), kernels, page, config, shape.vocab, stream)
        runner.take_pages(64)
    return runner


@pytest.fixture
def driver(folder: Path) -> Iterator[Driver]:
    """Plans, and what the CPU executor makes of them."""
    executor = load(folder, max_num_seqs=ROWS)
    yield Driver(executor)
    executor.close()


def _step(runner: StepRunner, plan: StepPlan) -> list[int]:
    checked = Plan(plan, runner.tables, runner.limits)
    event: Any = NoEvent()
    runner.launch(checked, plan.step % 3, event)
    ids: list[int] = runner.download.read(plan.step % 3, int(checked.sample.sum())).tolist()
    return ids


def test_the_same_plans_give_the_same_ids(driver: Driver, runner: StepRunner) -> None:
    """Prompts in chunks beside rows that decode, drawn and greedy, slots used again."""
    wanted = []
    done = dict.fromkeys(range(1, ROWS + 1), 0)
    for slot, prompt in enumerate(PROMPTS, 1):
        driver.open(slot, temperature=0.7 * (slot % 2), top_k=5 * (slot == 3), seed=slot)
        rows = [(old, None, done[old], True) for old in range(1, slot)]
        for first in range(0, len(prompt), 16):
            part = prompt[first : first + 16]
            wanted.append(driver.run((slot, part, first, first + 16 >= len(prompt)), *rows))
            done.update({old: done[old] + 1 for old in range(1, slot)})
            rows = [(old, None, done[old], True) for old in range(1, slot)]
        done[slot] = len(prompt)
    for _ in range(2):
        wanted.append(driver.run(*[(slot, None, done[slot], True) for slot in (4, 2, 1)]))
        done.update({slot: done[slot] + 1 for slot in (4, 2, 1)})
    driver.open(3, temperature=1.0, top_p=0.8, seed=9, suppress_until=12, suppress=pack_ids([1, 2]))
    wanted.append(driver.run((3, PROMPTS[1], 0, True)))
    wanted += [driver.run((3, None, 7 + more, True)) for more in range(2)]
    assert [_step(runner, plan) for plan in driver.plans] == wanted


@pytest.mark.filterwarnings("ignore:invalid value encountered")
def test_pages_that_are_not_finite_are_told(driver: Driver, runner: StepRunner) -> None:
    """The row's id comes down as -1; the other row's is right."""
    for slot in (1, 2):
        driver.open(slot)
    first = driver.run((1, PROMPTS[1], 0, True), (2, PROMPTS[2], 0, True))
    second = driver.run((1, None, 7, True), (2, None, 12, True))
    assert _step(runner, driver.plans[0]) == first
    damaged = runner.tables.page_table[1, 0]
    with torch.inference_mode():
        runner.pages[0].values[damaged].fill_(float("nan"))
    assert _step(runner, driver.plans[1]) == [-1, second[1]]


def test_plans_larger_than_the_buffers(runner: StepRunner) -> None:
    """They are refused, and nothing is written."""
    flags = ROW_DECODE | ROW_SAMPLE
    slots = range(1, ROWS + 2)
    pages = pack_ids(number for slot in slots for number in (slot, 0, 0, slot))
    plan = StepPlan(1, [], pages, pack_ids(number for slot in slots for number in (slot, 1, 3, flags)), b"")
    with pytest.raises(EngineError, match="has 5 rows with 0 tokens of prompts; at most 4 rows and 48 tokens"):
        _step(runner, plan)
    long = pack_ids(number for index in range(4) for number in (1, 0, index, 1 + index))
    prompt = StepPlan(2, [], long, pack_ids([1, 49, 0, ROW_SAMPLE]), pack_ids(range(49)))
    with pytest.raises(EngineError, match="has 1 rows with 49 tokens"):
        _step(runner, prompt)
    assert not runner.tables.covered.any()
