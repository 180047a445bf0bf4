"""Everything that a slot may ask for, on the demo model in float32: the ids and numbers of the CPU executor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.conftest import Record
from tests.e2e.test_equal_tokens import prompt_ids
from tests.kernels.edits import bad_words, biases
from tests.llamas import Driver, load
from tests.reference import TOLERANCE, Reference
from tokenspeed.executor.face import Executor
from tokenspeed.messages.base import pack_ids, unpack_ids
from tokenspeed.messages.logprobs import entries

STEPS = 48
SLOTS = 8
TOP = 5
# How far the two may lie apart where both are right: float32 products in another order.
APART = 2e-3
SETTINGS: tuple[dict[str, Any], ...] = (
    {},
    {"repetition_penalty": 1.3},
    {"frequency_penalty": 0.6, "presence_penalty": 0.4},
    {"temperature": 0.8, "top_p": 0.95, "repetition_penalty": 1.1, "seed": 7},
    {"temperature": 1.0, "allowed": pack_ids(range(300, 1300)), "seed": 8},
    {**biases({28: 4.0, 30: -100.0, 198: 2.0}), "frequency_penalty": 0.3},
    {"frequency_penalty": -0.2, **bad_words([28], [260, 216], [30, 198])},
    {"temperature": 0.7, "min_p": 0.05, "presence_penalty": 1.5, "seed": 9},
)


def _executor(model: Path, device: str) -> Executor:
    on_gpu: dict[str, Any] = {"page_tokens": 64, "chunked_prefill_size": 2048, "gpu_memory_utilization": 0.5}
    return load(
        model, device=device, max_model_len=2048, kv_cache_bytes=1 << 30, **(on_gpu if device == "cuda" else {})
    )


def _replies(executor: Executor, prompts: list[list[int]]) -> Driver:
    """Run every setting beside the others, all told of; return the driver."""
    driver = Driver(executor)
    for slot, prompt in enumerate(prompts, 1):
        settings = {"logprobs": TOP, "prompt_logprobs": 2, **SETTINGS[slot - 1]}
        driver.open(slot, prompt_tokens=len(prompt), history=pack_ids(prompt), **settings)
        driver.run((slot, prompt, 0, True))
    for step in range(STEPS):
        driver.run(*[(slot, None, len(prompt) + step, True) for slot, prompt in enumerate(prompts, 1)])
    executor.close()
    return driver


@pytest.fixture(scope="module")
def prompts(demo_model: Path) -> list[list[int]]:
    """As many prompts as settings."""
    return [ids[:500] for ids in prompt_ids(demo_model).values()][:SLOTS]


@pytest.fixture(scope="module")
def both(demo_model: Path, prompts: list[list[int]]) -> tuple[Driver, Driver]:
    """The same on the GPU and on the CPU."""
    there, here = (_replies(_executor(demo_model, device), prompts) for device in ("cuda", "cpu"))
    return there, here


def test_tokens_and_numbers_are_those_of_the_cpu(both: tuple[Driver, Driver], proof: Record) -> None:
    """Ids of every setting, their log-probabilities, and the scores of the prompts."""
    forks, apart = set(), 0.0
    for there, here in zip(both[0].outcomes, both[1].outcomes, strict=True):
        ids, wanted = unpack_ids(there.ids), unpack_ids(here.ids)
        forks |= {row for row, pair in enumerate(zip(ids, wanted, strict=True)) if len(set(pair)) > 1 and len(ids) > 1}
        pairs = zip(entries(there.logprobs, TOP), entries(here.logprobs, TOP), strict=True)
        for row, (one, other) in enumerate(pairs):
            if row not in forks and one.id == other.id:
                apart = max(apart, abs(one.logprob - other.logprob))
        for one, other in zip(entries(there.scores, 2), entries(here.scores, 2), strict=True):
            assert one.id == other.id
            apart = max(apart, abs(one.logprob - other.logprob))
    proof(tokens=SLOTS * (STEPS + 1), rows_parted=len(forks), logprob_apart_max=round(apart, 6))
    assert apart < APART
    # A tie may be settled otherwise by rounding; what follows it differs then.
    assert len(forks) <= 1


def test_numbers_are_a_log_softmax(both: tuple[Driver, Driver], demo_model: Path, prompts: list[list[int]]) -> None:
    """What is told of prompts and replies is the log-softmax of a reference over the same ids."""
    reference = Reference(demo_model)
    outcomes = both[0].outcomes
    for slot, prompt in enumerate(prompts):
        rows = [next(iter(entries(outcomes[slot].logprobs, TOP)))]
        rows += [list(entries(outcome.logprobs, TOP))[slot] for outcome in outcomes[SLOTS:]]
        scores = list(entries(outcomes[slot].scores, 2))
        assert [entry.id for entry in scores] == prompt[1:]
        ids = prompt + [entry.id for entry in rows]
        wanted = torch.log_softmax(reference.logits(ids[:-1]).double(), 1)
        for position, entry in enumerate([*scores, *rows], 1):
            assert abs(entry.logprob - float(wanted[position - 1, entry.id])) < 2 * TOLERANCE
