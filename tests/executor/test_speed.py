"""The demo model's speed on the CPU beside transformers' forward pass, step by step in turn.

The best of many steps counts: other work on the machine makes steps longer and never shorter.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

from tests.conftest import Record
from tests.llamas import Driver, load
from tests.reference import Reference
from tests.tiny import demo_path

CONTEXT = 200
CHUNK = 256
RANDOM = np.random.default_rng(1)


@pytest.fixture
def driver() -> Iterator[Driver]:
    """The demo model on every core, with pages for 20,000 tokens; transformers here as well."""
    before = torch.get_num_threads()
    cores = len(os.sched_getaffinity(0))
    torch.set_num_threads(cores)
    executor = load(demo_path(), max_model_len=8192, max_num_seqs=16, kv_cache_bytes=1 << 30, threads=cores)
    yield Driver(executor)
    executor.close()
    torch.set_num_threads(before)


def _ids(count: int) -> list[int]:
    numbers: list[int] = RANDOM.integers(0, 49152, count).tolist()
    return numbers


def _cache(model: Any, rows: int, tokens: int) -> Any:
    ids = torch.tensor([_ids(tokens) for _ in range(rows)])
    return model(ids, use_cache=True, logits_to_keep=1).past_key_values


def _best_ms(steps: int, *runs: Callable[[int], object]) -> list[float]:
    """Return the shortest time of each of `runs`, which take turns and are told the turn's number."""
    best = [float("inf")] * len(runs)
    for step in range(steps):
        for number, run in enumerate(runs):
            begin = time.perf_counter()
            run(step)
            best[number] = min(best[number], (time.perf_counter() - begin) * 1e3)
    return best


@pytest.mark.prove(shows="decode on the CPU is faster than transformers; a batch of 16 multiplies it", limit_s=900)
def test_decode(driver: Driver, proof: Record) -> None:
    """Batches of 1, 4 and 16 rows at a context of 200."""
    model = Reference(demo_path()).model
    figures: dict[str, float] = {}
    with torch.inference_mode():
        for rows in (1, 4, 16):
            slots = range(1, rows + 1)
            for slot in slots:
                driver.open(slot)
                driver.run((slot, _ids(CONTEXT), 0, True))
            cache = _cache(model, rows, CONTEXT)
            token = torch.zeros(rows, 1, dtype=torch.int64)

            def ours(step: int, slots: range = slots) -> None:
                driver.run(*((slot, None, CONTEXT + step, True) for slot in slots))

            def theirs(step: int, token: torch.Tensor = token, cache: Any = cache) -> None:
                model(token, past_key_values=cache, use_cache=True, logits_to_keep=1).logits.argmax(-1)

            ours_ms, theirs_ms = _best_ms(40, ours, theirs)
            figures[f"tokens_per_s_{rows}"] = round(rows * 1e3 / ours_ms, 1)
            figures[f"tokens_per_s_{rows}_transformers"] = round(rows * 1e3 / theirs_ms, 1)
    proof(**figures)
    assert figures["tokens_per_s_1"] > figures["tokens_per_s_1_transformers"]
    assert figures["tokens_per_s_16"] > 4 * figures["tokens_per_s_1"]


@pytest.mark.prove(shows="prefill on the CPU keeps up with transformers", limit_s=900)
def test_prefill(driver: Driver, proof: Record) -> None:
    """Chunks of 256 tokens at the start and behind 5,000 tokens."""
    model = Reference(demo_path()).model
    chunk = _ids(CHUNK)
    with torch.inference_mode():
        for context in (0, 5000):
            driver.open(1)
            for first in range(0, context, CHUNK):
                driver.run((1, _ids(min(CHUNK, context - first)), first, False))
            cache = _cache(model, 1, context) if context else None

            def ours(step: int, context: int = context) -> None:
                driver.run((1, chunk, context, True))

            def theirs(step: int, cache: Any = cache) -> None:
                model(torch.tensor([chunk]), past_key_values=cache, use_cache=True, logits_to_keep=1)
                if cache is not None:
                    cache.crop(-CHUNK)

            ours_ms, theirs_ms = _best_ms(5, ours, theirs)
            proof(
                context_tokens=context,
                tokens_per_s=round(CHUNK * 1e3 / ours_ms),
                tokens_per_s_transformers=round(CHUNK * 1e3 / theirs_ms),
            )
            assert ours_ms < 1.1 * theirs_ms
