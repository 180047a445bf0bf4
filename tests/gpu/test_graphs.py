"""A graph computes the bits that the same code computes without one, and computes them again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.kernels.edits import bad_words, biases
from tests.llamas import Driver, executor_config
from tokenspeed.executor.cuda.executor import CudaExecutor
from tokenspeed.messages.base import pack_ids
from tokenspeed.messages.logprobs import entries, entry_bytes

NUMBERS = np.random.default_rng(11)
STEPS = 12
# One bucket each: exactly full, with padding, and above the largest power of two.
ROWS = (1, 3, 8, 20, 40)
SETTINGS = {
    "device": "cuda",
    "dtype": "bfloat16",
    "load_format": "dummy",
    "page_tokens": 64,
    "max_model_len": 1024,
    "kv_cache_bytes": 1 << 30,
    "chunked_prefill_size": 512,
}


def _asks(slot: int, prompt: list[int]) -> dict[str, Any]:
    """What every other slot asks for: penalties, bias, bad words and log-probabilities."""
    if slot % 2:
        return {}
    edits: dict[str, Any] = {"repetition_penalty": 1.3, "presence_penalty": 0.4, "frequency_penalty": 0.2}
    edits |= {**biases({5: 3.0, 128255: -2.0}), **bad_words([prompt[0]], prompt[:3])}
    return {"logprobs": slot % 21, "prompt_tokens": len(prompt), "history": pack_ids(prompt), **edits}


def _run(
    executor: CudaExecutor, rows: int, asks: Callable[[int, list[int]], dict[str, Any]] = lambda slot, prompt: {}
) -> tuple[list[int], list[torch.Tensor], list[bytes]]:
    """Decode `rows` requests for some steps; return their ids, the pages of every layer and log-probabilities."""
    driver = Driver(executor)
    prompts = np.random.default_rng(rows).integers(0, 128256, (rows, 70)).tolist()
    ids: list[int] = []
    for slot, prompt in enumerate(prompts, 1):
        driver.open(slot, temperature=0.0 if slot % 3 else 0.9, top_p=0.9, seed=slot, **asks(slot, prompt))
        ids += driver.run((slot, prompt, 0, True))
    for step in range(STEPS):
        ids += driver.run(*[(slot, None, 70 + step, True) for slot in range(1, rows + 1)])
    torch.cuda.synchronize()
    used = 1 + 2 * rows
    pages = [tensor[1:used].clone() for layer in executor.runner.pages for tensor in (layer.keys, layer.values)]
    return ids, pages, [outcome.logprobs for outcome in driver.outcomes]


@pytest.fixture(scope="module")
def graphs(four_layers: Path) -> Iterator[CudaExecutor]:
    """An executor that replays graphs."""
    executor = CudaExecutor.load(executor_config(four_layers, max_num_seqs=40, **SETTINGS), lambda phase, share: None)
    yield executor
    executor.close()


@pytest.fixture(scope="module")
def eager(four_layers: Path) -> Iterator[CudaExecutor]:
    """One that launches each kernel."""
    config = executor_config(four_layers, max_num_seqs=40, enforce_eager=True, **SETTINGS)
    executor = CudaExecutor.load(config, lambda phase, share: None)
    yield executor
    executor.close()


@pytest.mark.parametrize("asks", [None, _asks], ids=["plain", "full"])
@pytest.mark.parametrize("rows", ROWS)
def test_graphs_and_eager_agree_bit_by_bit(
    graphs: CudaExecutor, eager: CudaExecutor, rows: int, asks: Callable[[int, list[int]], dict[str, Any]] | None
) -> None:
    """Ids, log-probabilities and every key and value are equal bits; so is a second run."""
    given = () if asks is None else (asks,)
    ids, pages, told = _run(graphs, rows, *given)
    for other_ids, other_pages, other_told in (_run(eager, rows, *given), _run(graphs, rows, *given)):
        assert other_ids == ids
        assert other_told == told
        assert all(torch.equal(a, b) for a, b in zip(pages, other_pages, strict=True))
    assert all(tensor.isfinite().all() for tensor in pages)
    assert len(set(ids)) > len(ids) // 4, "the made-up weights say the same thing again and again"


@pytest.mark.parametrize("rows", ROWS)
def test_a_row_is_not_changed_by_what_others_ask(graphs: CudaExecutor, rows: int) -> None:
    """With log-probabilities told of every other row, all ids and pages are the bits of steps without a tail."""
    ids, pages, _ = _run(graphs, rows)
    same_ids, same_pages, told = _run(graphs, rows, lambda slot, prompt: {"logprobs": 5} if slot % 2 else {})
    assert same_ids == ids
    assert all(torch.equal(a, b) for a, b in zip(pages, same_pages, strict=True))
    tellers = (rows + 1) // 2
    assert [len(entries) for entries in told[rows:]] == [tellers * entry_bytes(5)] * STEPS
    for entries_of_step in told[rows:]:
        for entry in entries(entries_of_step, 5):
            assert entry.top_logprobs == sorted(entry.top_logprobs, reverse=True)
            assert entry.rank > 5 or entry.top_ids[entry.rank - 1] == entry.id or entry.logprob in entry.top_logprobs


def test_nothing_compiles_after_ready(graphs: CudaExecutor) -> None:
    """Steps of every make, sizes never seen before among them, compile no kernel."""
    from triton import knobs

    compiled: list[str] = []
    knobs.runtime.jit_post_compile_hook = lambda **facts: compiled.append(str(facts["fn"].name))
    try:
        driver = Driver(graphs)
        for slot, tokens in enumerate((2, 5, 64, 129, 333), 1):
            driver.open(slot, temperature=1.0, top_k=5, top_p=0.9, seed=slot)
            driver.run((slot, NUMBERS.integers(0, 128256, tokens).tolist(), 0, True))
        context = dict(enumerate((2, 5, 64, 129, 333), 1))
        for _ in range(3):
            driver.run(*[(slot, None, length, True) for slot, length in context.items()])
            context = {slot: length + 1 for slot, length in context.items()}
        driver.open(9, logprobs=3, repetition_penalty=1.2)
        driver.run((1, None, context[1], True), (9, NUMBERS.integers(0, 128256, 77).tolist(), 0, True))
        driver.run((9, None, 77, True), (2, None, context[2], True))
        for slot, tokens in ((10, 3), (11, 300)):
            prompt = NUMBERS.integers(0, 128256, tokens).tolist()
            driver.open(slot, prompt_logprobs=2, prompt_tokens=tokens, history=pack_ids(prompt))
            driver.run((slot, prompt, 0, True))
    finally:
        knobs.runtime.jit_post_compile_hook = None
    assert compiled == []
