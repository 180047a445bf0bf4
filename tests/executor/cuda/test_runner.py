"""The GPU's step over interpreted kernels brings what the CPU executor brings for the same plans."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenspeed_kernels import selector
from tokenspeed_kernels.sampling.edits import ALLOWS, BANS

from tests.kernels.edits import Edits, bad_words, biases
from tests.llamas import Driver, executor_config, load, random_model, save_folder
from tokenspeed.errors import EngineError
from tokenspeed.executor.batch import Plan
from tokenspeed.executor.completion import StepIds
from tokenspeed.executor.cuda import runner, scores
from tokenspeed.executor.cuda.results import read
from tokenspeed.executor.cuda.runner import StepRunner
from tokenspeed.executor.pools import PageShape
from tokenspeed.messages.base import pack_ids, unpack_ids
from tokenspeed.messages.executor import ROW_DECODE, ROW_SAMPLE, StepPlan
from tokenspeed.messages.logprobs import entries
from tokenspeed.messages.scheduler import ROW_FAILED
from tokenspeed.model.build import declare_model
from tokenspeed.model.placement import OneRank

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(torch.cuda.is_available(), reason="tests/gpu runs the executor itself"),
]

NUMBERS = np.random.default_rng(8)
PROMPTS = [NUMBERS.integers(0, 259, size).tolist() for size in (1, 5, 18)]
ROWS = 4
# The interpreter takes a tenth of a second a kernel and row: layers and heads are few.
SHAPE = {"hidden_size": 32, "head_dim": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1}


class NoClock:
    """What times a step: here it has ended when it returns."""

    def begin(self) -> None:
        """Do nothing."""

    def uploaded(self, step: int) -> None:
        """Do nothing."""

    def end(self, mark: None, step: int) -> None:
        """Do nothing."""


class Both:
    """The CPU executor, whose driver keeps plans and outcomes, and a runner to which the same plans are given."""

    def __init__(self, folder: Path) -> None:
        """Load the checkpoint at `folder` twice."""
        # Nothing newer: the interpreter has no early starts.
        kernels = selector("cuda", capability=(8, 0))
        config = executor_config(folder, max_num_seqs=ROWS, chunked_prefill_size=48)
        declared = declare_model(str(folder), 256, torch.float32, kernels, OneRank())
        shape = declared.shape
        page = PageShape(shape.layers, 16, declared.kv_heads, shape.head_dim, torch.float32)
        stream: Any = None
        with torch.inference_mode():
            self.runner = StepRunner(
                declared.load(lambda phase, share: None), kernels, page, config, shape.vocab, stream
            )
            self.runner.take_pages(64)
        self.driver = Driver(load(folder, max_num_seqs=ROWS))

    def step(self, plan: StepPlan) -> StepIds:
        """Run `plan` on the runner."""
        checked = Plan(plan, self.runner.tables, self.runner.limits)
        clock: Any = NoClock()
        launched, _ = self.runner.launch(checked, plan.step % 3, clock, plan.step)
        return read(launched, self.runner.download, plan.step % 3)

    def replay(self) -> None:
        """Give the runner the driver's plans; it brings the same."""
        for plan, outcome in zip(self.driver.plans, self.driver.outcomes, strict=True):
            brought = self.step(plan)
            assert unpack_ids(brought.ids) == unpack_ids(outcome.ids), plan.step
            assert brought.counts == outcome.counts


def _make(family: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Both:
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
    return Both(save_folder(random_model(family, **SHAPE), folder / "checkpoint"))


@pytest.fixture
def both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Both]:
    """A random Llama whose heads the kernels take; the runner's device is the CPU, its kernels are the GPU's."""
    made = _make("Llama", tmp_path, monkeypatch)
    yield made
    made.driver.executor.close()


def test_the_same_plans_give_the_same_ids(both: Both) -> None:
    """Prompts in chunks beside rows that decode, drawn and greedy, slots used again."""
    driver = both.driver
    done = dict.fromkeys(range(1, len(PROMPTS) + 1), 0)
    for slot, prompt in enumerate(PROMPTS, 1):
        driver.open(slot, temperature=0.7 * (slot % 2), top_k=5 * (slot == 3), seed=slot)
        for first in range(0, len(prompt), 16):
            part = prompt[first : first + 16]
            driver.run(
                (slot, part, first, first + 16 >= len(prompt)),
                *[(old, None, done[old], True) for old in range(1, slot)],
            )
            done.update({old: done[old] + 1 for old in range(1, slot)})
        done[slot] = len(prompt)
    driver.run(*[(slot, None, done[slot], True) for slot in (3, 2, 1)])
    driver.open(3, temperature=1.0, top_p=0.8, seed=9, suppress_until=12, suppress=pack_ids([1, 2]))
    driver.run((3, PROMPTS[1], 0, True))
    driver.run((3, None, 5, True))
    both.replay()


def test_another_attention(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Qwen3 normalises heads; the rest of the step is the same."""
    both = _make("Qwen3", tmp_path, monkeypatch)
    both.driver.open(1)
    both.driver.run((1, PROMPTS[1], 0, True))
    both.driver.run((1, None, 5, True))
    both.replay()
    both.driver.executor.close()


def _same_entries(seen: bytes, wanted: bytes, *tops: int) -> None:
    """Entries of `tops` name the same ids and ranks; their numbers differ by rounding at most."""
    assert len(seen) == len(wanted) == sum(4 * (3 + 2 * top) for top in tops)
    at = 0
    for top in tops:
        [one], [other] = (list(entries(data[at : at + 4 * (3 + 2 * top)], top)) for data in (seen, wanted))
        assert (one.id, one.rank, one.top_ids) == (other.id, other.rank, other.top_ids)
        assert [one.logprob, *one.top_logprobs] == pytest.approx([other.logprob, *other.top_logprobs], abs=2e-5)
        at += 4 * (3 + 2 * top)


def test_everything_that_a_slot_may_ask_for(both: Both) -> None:
    """Penalties over prompt and reply, bias, bad words and log-probabilities, beside a row that asks for nothing."""
    driver, prompt = both.driver, PROMPTS[1]
    history: dict[str, Any] = {"prompt_tokens": 5, "history": pack_ids(prompt)}
    driver.open(1, logprobs=3, repetition_penalty=1.8, frequency_penalty=6.0, temperature=0.8, seed=3, **history)
    driver.open(2)
    driver.open(3, logprobs=0, prompt_tokens=5, allowed=pack_ids([7, 8, 9]), **biases({8: 3.0}))
    driver.run(*[(slot, prompt, 0, True) for slot in (1, 2, 3)])
    # From here on slot 2 has another request, which must not say again what it said.
    said = unpack_ids(driver.outcomes[0].ids)[1]
    driver.open(2, **history, **bad_words([said], [prompt[0], 3]))
    driver.run((1, None, 5, True), (2, prompt, 0, True), (3, None, 5, True))
    driver.run((2, None, 5, True), (1, None, 6, True))
    driver.run((3, None, 6, True))
    tops = {1: 3, 3: 0}
    told: list[list[int]] = [[1, 3], [1, 3], [1], [3]]
    for plan, outcome, slots in zip(driver.plans, driver.outcomes, told, strict=True):
        brought = both.step(plan)
        assert brought.ids == outcome.ids
        _same_entries(brought.logprobs, outcome.logprobs, *[tops[slot] for slot in slots])
    assert unpack_ids(driver.outcomes[1].ids)[1] != said
    assert not both.runner._edits.counts.any()


def test_prompts_are_scored(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    """In chunks, the head slice by slice, beside a row that decodes; the id behind the prompt is drawn."""
    monkeypatch.setattr(scores, "SLICE_ROWS", 4)
    monkeypatch.setattr(runner, "SLICE_ROWS", 4)
    driver, prompt = both.driver, PROMPTS[2]
    driver.open(1)
    driver.run((1, PROMPTS[1], 0, True))
    driver.open(2, prompt_logprobs=2, logprobs=1, prompt_tokens=18, history=pack_ids(prompt))
    driver.run((2, prompt[:7], 0, False), (1, None, 5, True))
    driver.run((1, None, 6, True), (2, prompt[7:17], 7, False))
    driver.run((2, prompt[17:], 17, True))
    for plan, outcome, count in zip(driver.plans, driver.outcomes, (0, 7, 10, 0), strict=True):
        brought = both.step(plan)
        assert brought.ids == outcome.ids
        _same_entries(brought.scores, outcome.scores, *[2] * count)
    _same_entries(brought.logprobs, outcome.logprobs, 1)
    scored = [entry.id for outcome in driver.outcomes for entry in entries(outcome.scores, 2)]
    assert scored == prompt[1:]


@pytest.mark.filterwarnings("ignore:invalid value encountered")
def test_a_row_that_cannot_be_drawn_ends_alone(both: Both) -> None:
    """Pages that are not finite, or settings that leave no id, are told of their row; the others are right."""
    driver = both.driver
    for slot in (1, 2, 3):
        driver.open(slot, logprobs=1 if slot == 2 else -1)
    driver.run(*[(slot, PROMPTS[1], 0, True) for slot in (1, 2, 3)])
    driver.run(*[(slot, None, 5, True) for slot in (1, 2, 3)])
    both.step(driver.plans[0])
    damaged = both.runner.tables.page_table[1, 0]
    with torch.inference_mode():
        both.runner.pages[0].values[damaged].fill_(float("nan"))
        both.runner._settings.edits[3] = ALLOWS | BANS
        both.runner._edits.open(Edits(3, allowed=pack_ids([4]), **bad_words([4])))
    brought, wanted = both.step(driver.plans[1]), driver.outcomes[1]
    assert unpack_ids(brought.counts) == [ROW_FAILED, 1, ROW_FAILED]
    assert unpack_ids(brought.ids) == unpack_ids(wanted.ids)[1:2]
    _same_entries(brought.logprobs, wanted.logprobs, 1)


def test_plans_larger_than_the_buffers(both: Both) -> None:
    """They are refused, and nothing is written."""
    flags = ROW_DECODE | ROW_SAMPLE
    slots = range(1, ROWS + 2)
    pages = pack_ids(number for slot in slots for number in (slot, 0, 0, slot))
    plan = StepPlan(1, [], pages, pack_ids(number for slot in slots for number in (slot, 1, 3, flags)), b"")
    with pytest.raises(EngineError, match="has 5 rows with 0 tokens of prompts; at most 4 rows and 48 tokens"):
        both.step(plan)
    long = pack_ids(number for index in range(4) for number in (1, 0, index, 1 + index))
    prompt = StepPlan(2, [], long, pack_ids([1, 49, 0, ROW_SAMPLE]), pack_ids(range(49)))
    with pytest.raises(EngineError, match="has 1 rows with 49 tokens"):
        both.step(prompt)
    assert not both.runner.tables.covered.any()
