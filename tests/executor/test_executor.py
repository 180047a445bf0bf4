"""Steps of a small random Llama: every way to cut the work gives transformers' greedy ids."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.llamas import SIZES, Driver, executor_config, load, random_llama, save_folder
from tests.reference import Reference, assert_equal_tokens
from tokenspeed.errors import EngineError, StartError
from tokenspeed.executor.executor import Executor
from tokenspeed.messages.base import pack_ids

NUMBERS = np.random.default_rng(3)
PROMPTS = [NUMBERS.integers(0, SIZES["vocab_size"], size).tolist() for size in (5, 16, 33, 100)]
COUNT = 24


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random checkpoint."""
    return save_folder(random_llama(), tmp_path_factory.mktemp("llama") / "checkpoint")


@pytest.fixture(scope="module")
def wanted(folder: Path) -> list[list[int]]:
    """The greedy ids of transformers behind each prompt."""
    reference = Reference(folder)
    return [reference.greedy(prompt, COUNT).ids for prompt in PROMPTS]


@pytest.fixture
def driver(folder: Path) -> Iterator[Driver]:
    """A fresh executor to plan for."""
    executor = load(folder)
    yield Driver(executor)
    executor.close()


def test_what_it_reports(driver: Driver) -> None:
    """The facts for the scheduler: pages from the bytes, slots for twice the running requests."""
    page_bytes = 2 * 3 * 16 * 2 * 12 * 4
    assert driver.executor.pages_total == ((8 << 20) // page_bytes,)
    assert (driver.executor.page_tokens, driver.executor.slots, driver.executor.vocab_tokens) == (16, 17, 259)


@pytest.mark.parametrize("chunk", [1, 16, 23, 200])
def test_alone(driver: Driver, wanted: list[list[int]], chunk: int) -> None:
    """One request after the other through one slot, prefilled in chunks: no old state shows."""
    assert [driver.generate(1, prompt, COUNT, chunk) for prompt in PROMPTS] == wanted


def test_mixed_steps(driver: Driver, wanted: list[list[int]]) -> None:
    """Requests start one after the other while the others decode; chunks and decode rows share steps."""
    outputs: list[list[int]] = [[] for _ in PROMPTS]
    done = [0] * len(PROMPTS)
    for step in range(80):
        rows: list[tuple[int, list[int] | None, int, bool]] = []
        for number, prompt in enumerate(PROMPTS):
            if step == number * 3:
                driver.open(number + 2)
            if step < number * 3 or len(outputs[number]) == COUNT:
                continue
            left = prompt[done[number] :][:13]
            rows.append((number + 2, left or None, done[number], done[number] + len(left) >= len(prompt)))
        # Not always in the same order, as a scheduler may do.
        rows = rows[step % len(rows) :] + rows[: step % len(rows)] if rows else rows
        ids = iter(driver.run(*rows))
        for slot, left, _, sampled in rows:
            done[slot - 2] += len(left or [0])
            if sampled:
                outputs[slot - 2].append(next(ids))
    assert outputs == wanted


def test_a_cached_prefix_is_read(driver: Driver, wanted: list[list[int]]) -> None:
    """A slot that is given another's full pages goes on behind them."""
    prompt = PROMPTS[2]
    driver.generate(1, prompt, 1)
    first = [page for page in driver.executor._slots.page_table[1] if page][:2]
    driver.open(5, pages=first)
    ids = driver.run((5, prompt[32:], 32, True))
    ids += [driver.run((5, None, 33 + done, True))[0] for done in range(COUNT - 1)]
    assert ids == wanted[2]


def test_sampled_ids_do_not_depend_on_company(driver: Driver) -> None:
    """The same seed draws the same ids alone, beside others, and in another slot after a restart midway."""
    settings: dict[str, Any] = {"temperature": 1.0, "top_p": 0.95, "seed": 2**63 + 17}
    alone = driver.generate(1, PROMPTS[0], COUNT, **settings)
    assert driver.generate(2, PROMPTS[0], COUNT, **{**settings, "seed": 18}) != alone

    driver.open(3, **settings)
    driver.open(4, temperature=3.0, seed=5)
    ids = [driver.run((4, PROMPTS[1], 0, True), (3, PROMPTS[0], 0, True))[1]]
    ids += [driver.run((4, None, 16 + done, True), (3, None, 5 + done, True))[1] for done in range(9)]
    assert ids == alone[:10]

    # Retracted: prompt and output so far come again as a prompt.
    driver.open(6, **settings)
    ids += driver.run((6, PROMPTS[0] + ids, 0, True))
    ids += [driver.run((6, None, 15 + done, True))[0] for done in range(COUNT - 11)]
    assert ids == alone


def test_suppressed_ids_are_not_drawn_before_their_time(driver: Driver, wanted: list[list[int]]) -> None:
    """The ids that greedy would take are left out below a position, and come back at it."""
    prompt, banned = PROMPTS[1], wanted[1][:1]
    ids = driver.generate(1, prompt, 4, suppress_until=len(prompt) + 1, suppress=pack_ids(banned))
    assert ids[0] != wanted[1][0]
    assert driver.generate(1, prompt, COUNT, suppress_until=len(prompt), suppress=pack_ids(banned)) == wanted[1]
    drawn = driver.generate(
        2, prompt, 8, temperature=1.0, top_k=1, suppress_until=len(prompt) + 1, suppress=pack_ids(banned)
    )
    assert drawn[0] == ids[0]


def test_a_plan_without_rows(driver: Driver) -> None:
    """Openings alone are a plan too."""
    driver.open(1)
    assert driver.run() == []


def test_unsampled_rows_give_no_ids(driver: Driver, wanted: list[list[int]]) -> None:
    """Of three rows two are sampled: two ids, in row order."""
    for slot in (1, 2, 3):
        driver.open(slot)
    assert driver.run((3, PROMPTS[1], 0, True), (1, PROMPTS[2][:9], 0, False), (2, PROMPTS[0], 0, True)) == [
        wanted[1][0],
        wanted[0][0],
    ]


def test_damaged_pages_are_noticed(driver: Driver) -> None:
    """Numbers that are not finite end the step and not the executor."""
    driver.open(1)
    driver.run((1, PROMPTS[0], 0, True))
    with torch.inference_mode():
        driver.executor._pages.layers[0].keys.fill_(float("nan"))
    with pytest.raises(EngineError, match=r"not finite for slots \[1\]"):
        driver.run((1, None, 5, True))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"device": "cuda"}, "device is cuda; cpu is supported"),
        ({"kv_cache_bytes": 10_000}, "holds 0 tokens; 16 are needed"),
        ({"kernels": "attention"}, 'override "attention" is not of the form'),
        ({"kernels": "attention=flash"}, "asks for flash"),
        ({"ranks": 2}, "2 ranks need a rendezvous file"),
    ],
)
def test_refused_settings(folder: Path, changes: dict[str, object], words: str) -> None:
    """What cannot work is said before anything is loaded."""
    with pytest.raises(StartError) as caught:
        load(folder, **changes)
    assert words in caught.value.message


def test_refused_dtype(folder: Path) -> None:
    """Half precision is not computed on the CPU."""
    config = executor_config(folder)
    half = type(config.model)(path=str(folder), served_name="", dtype="bfloat16", max_model_len=64)
    with pytest.raises(StartError, match="dtype is bfloat16; float32"):
        Executor.load(type(config)(model=half), lambda phase, share: None)


def test_a_model_larger_than_memory(folder: Path) -> None:
    """Both numbers are in the text, and nothing was reserved."""
    with pytest.raises(StartError, match=r"needs [\d,]+ MiB of memory .* and [\d,]+ MiB are available") as caught:
        load(folder, kv_cache_bytes=1 << 50)
    assert caught.value.code == "out_of_memory"


def test_equal_tokens_is_not_blind(folder: Path, wanted: list[list[int]]) -> None:
    """The comparer accepts the reference itself and fails on one wrong id."""
    reference = Reference(folder)
    assert_equal_tokens(reference, zip(PROMPTS, wanted, strict=True))
    wrong = [*wanted[1][:7], (wanted[1][7] + 1) % 259, *wanted[1][8:]]
    with pytest.raises(AssertionError, match="prompt 0, output 7"):
        assert_equal_tokens(reference, [(PROMPTS[1], wrong)])


def test_a_context_shorter_than_a_page(folder: Path) -> None:
    """The warm-up, too, stays inside the context."""
    executor = load(folder, max_model_len=2)
    assert len(Driver(executor).generate(1, [5], 1, 16)) == 1
    executor.close()
