"""Lookup in a table that lies as checkpoints hold it."""

from __future__ import annotations

import pytest
import torch
from tokenspeed_kernels import selector
from tokenspeed_kernels.embedding import lookup

from tests.kernels.numerics import CAPABILITY, GPU_DTYPES, draw

KERNELS = selector("cuda", capability=CAPABILITY)


@pytest.mark.parametrize("dtype", GPU_DTYPES)
@pytest.mark.parametrize("ids_dtype", [torch.int32, torch.int64])
def test_lookup(dtype: torch.dtype, ids_dtype: torch.dtype, device: str) -> None:
    """Rows come as they are; slices sum to the whole, each id in one of them."""
    rows = draw(10, 24, dtype=dtype, device=device)
    ids = torch.tensor([9, 0, 4, 5, 4], dtype=ids_dtype, device=device)
    seen = lookup(KERNELS, dtype, sliced=False)(ids, rows.t(), 0)
    assert seen.is_contiguous()
    assert torch.equal(seen, rows[ids.long()])
    part = lookup(KERNELS, dtype, sliced=True)
    low, high = part(ids, rows[:5].t(), 0), part(ids, rows[5:].t(), 5)
    assert torch.equal(low + high, seen)
    assert torch.equal(low.any(dim=1), ids < 5)
