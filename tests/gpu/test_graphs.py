"""A graph computes the bits that the same code computes without one, and computes them again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.llamas import Driver, executor_config
from tokenspeed.executor.cuda.executor import CudaExecutor

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


def _run(executor: CudaExecutor, rows: int) -> tuple[list[int], list[torch.Tensor]]:
    """Decode `rows` requests for some steps; return their ids and the pages of every layer."""
    driver = Driver(executor)
    prompts = np.random.default_rng(rows).integers(0, 128256, (rows, 70)).tolist()
    ids: list[int] = []
    for slot, prompt in enumerate(prompts, 1):
        driver.open(slot, temperature=0.0 if slot % 3 else 0.9, top_p=0.9, seed=slot)
        ids += driver.run((slot, prompt, 0, True))
    for step in range(STEPS):
        ids += driver.run(*[(slot, None, 70 + step, True) for slot in range(1, rows + 1)])
    torch.cuda.synchronize()
    used = 1 + 2 * rows
    pages = [tensor[1:used].clone() for layer in executor.runner.pages for tensor in (layer.keys, layer.values)]
    return ids, pages


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


@pytest.mark.parametrize("rows", ROWS)
def test_graphs_and_eager_agree_bit_by_bit(graphs: CudaExecutor, eager: CudaExecutor, rows: int) -> None:
    """Ids and every key and value are equal bits; so is a second run."""
    ids, pages = _run(graphs, rows)
    for other_ids, other_pages in (_run(eager, rows), _run(graphs, rows)):
        assert other_ids == ids
        assert all(torch.equal(a, b) for a, b in zip(pages, other_pages, strict=True))
    assert all(tensor.isfinite().all() for tensor in pages)
    assert len(set(ids)) > len(ids) // 4, "the made-up weights say the same thing again and again"


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
        driver.open(9)
        driver.run((1, None, context[1], True), (9, NUMBERS.integers(0, 128256, 77).tolist(), 0, False))
    finally:
        knobs.runtime.jit_post_compile_hook = None
    assert compiled == []
