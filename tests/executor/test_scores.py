"""Log-probabilities and penalties of whole steps, against transformers and across a restart of a slot."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.llamas import SIZES, Driver, load, random_llama, save_folder
from tests.reference import Reference
from tokenspeed.messages.base import pack_ids
from tokenspeed.messages.logprobs import Entry, entries

PROMPT = np.random.default_rng(8).integers(0, SIZES["vocab_size"], 100).tolist()
TOP = 3


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random checkpoint."""
    return save_folder(random_llama(), tmp_path_factory.mktemp("llama") / "checkpoint")


@pytest.fixture(scope="module")
def driver(folder: Path) -> Iterator[Driver]:
    """An executor to plan for; each test has slots of its own."""
    executor = load(folder)
    yield Driver(executor)
    executor.close()


def told(driver: Driver, field: str, top: int) -> list[Entry]:
    """Return the entries of the last step."""
    return list(entries(getattr(driver.outcomes[-1], field), top))


def assert_equal(found: list[Entry], ids: list[int], wanted: torch.Tensor) -> None:
    """Hold entries against log-probabilities [entries, vocab] of transformers."""
    assert [entry.id for entry in found] == ids
    for entry, row in zip(found, wanted, strict=True):
        assert entry.logprob == pytest.approx(row[entry.id].item(), abs=1e-4)
        assert entry.rank == pytest.approx(1 + int((row > row[entry.id]).sum()), abs=1)
        assert entry.top_logprobs == pytest.approx(row.topk(len(entry.top_ids)).values.tolist(), abs=1e-4)


@pytest.mark.parametrize(("slot", "chunk"), [(1, 7), (2, 33), (3, 100)])
def test_equal_to_transformers(driver: Driver, folder: Path, slot: int, chunk: int) -> None:
    """Every prompt token but the first, however the prompt is cut, and the token drawn behind it."""
    driver.open(slot, prompt_tokens=100, history=pack_ids(PROMPT), prompt_logprobs=TOP, logprobs=TOP)
    scores: list[Entry] = []
    drawn: list[int] = []
    for first in range(0, 100, chunk):
        part = PROMPT[first : first + chunk]
        drawn = driver.run((slot, part, first, first + chunk >= 100))
        scores += told(driver, "scores", TOP)
    wanted = Reference(folder).logits(PROMPT).double().log_softmax(dim=1)
    assert_equal(scores, PROMPT[1:], wanted[:-1])
    assert_equal(told(driver, "logprobs", TOP), drawn, wanted[-1:])


def test_only_those_who_ask_are_told_and_in_row_order(driver: Driver) -> None:
    """Rows that ask for different numbers share a step with one that asks for nothing."""
    driver.open(4, logprobs=0)
    driver.open(5)
    driver.open(6, prompt_tokens=3, history=pack_ids(PROMPT[:3]), prompt_logprobs=0, logprobs=2)
    ids = driver.run((6, PROMPT[:3], 0, True), (5, PROMPT[:9], 0, True), (4, PROMPT[:5], 0, True))
    first, last = driver.outcomes[-1].logprobs[: 4 * 7], driver.outcomes[-1].logprobs[4 * 7 :]
    assert [entry.id for entry in [*entries(first, 2), *entries(last, 0)]] == [ids[0], ids[2]]
    assert [entry.id for entry in told(driver, "scores", 0)] == PROMPT[1:3]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_penalties_go_on_where_a_slot_is_opened_again(driver: Driver, temperature: float) -> None:
    """A request that is retracted in its reply comes with its ids, and draws what it would have drawn."""
    words = [PROMPT[0], PROMPT[1]]
    settings: dict[str, Any] = {
        "temperature": temperature,
        "seed": 5,
        "prompt_tokens": 40,
        "presence_penalty": 0.7,
        "frequency_penalty": 0.4,
        "repetition_penalty": 1.3,
        "bad_word_ids": pack_ids(words),
        "bad_word_ends": pack_ids([2]),
    }
    prompt = PROMPT[:40]
    plain = driver.generate(7, prompt, 20, temperature=temperature, seed=5)
    calm = driver.generate(7, prompt, 20, history=pack_ids(prompt), **settings)
    assert calm != plain
    driver.open(8, history=pack_ids(prompt + calm[:9]), **settings)
    ids = driver.run((8, prompt + calm[:9], 0, True))
    ids += [driver.run((8, None, 49 + done, True))[0] for done in range(10)]
    assert ids == calm[9:]
