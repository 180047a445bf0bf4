"""Packed log-probabilities against float64, ties included."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenspeed.executor.logprobs import entries, likeliest
from tokenspeed.messages import logprobs as packed


@given(seed=st.integers(0, 2**32 - 1), rows=st.integers(1, 5), top=st.integers(0, 20), coarse=st.booleans())
@settings(max_examples=100, deadline=None)
def test_equal_to_float64(seed: int, rows: int, top: int, coarse: bool) -> None:
    """`coarse` logits are full of ties."""
    numbers = np.random.default_rng(seed)
    logits = numbers.normal(0, 3, (rows, 40)).astype(np.float32)
    logits = np.round(logits) if coarse else logits
    ids = numbers.integers(0, 40, rows)
    wanted = logits.astype(np.float64)
    wanted -= np.log(np.exp(wanted).sum(axis=1, keepdims=True))
    data = entries(torch.from_numpy(logits), torch.from_numpy(ids), top)
    assert len(data) == rows * packed.entry_bytes(top)
    for row, entry in enumerate(packed.entries(data, top)):
        order = sorted(range(40), key=lambda token: (-logits[row, token], token))[:top]
        assert (entry.id, entry.top_ids) == (ids[row], order)
        assert entry.rank == 1 + int((logits[row] > logits[row, ids[row]]).sum())
        assert [entry.logprob, *entry.top_logprobs] == pytest.approx(wanted[row, [ids[row], *order]], abs=1e-5)


def test_a_tie_across_the_end_goes_to_the_lower_ids() -> None:
    logits = torch.zeros(2, 5000)
    logits[0, 4000] = 1.0
    assert likeliest(logits, 3).tolist() == [[4000, 0, 1], [0, 1, 2]]
