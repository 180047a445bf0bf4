"""Sums of memory, and refusals with numbers in them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tokenspeed.errors import StartError
from tokenspeed.executor.memory import OVERHEAD_BYTES, check_memory, pages_that_fit
from tokenspeed.executor.pools import PagePool, PageShape

SHAPE = PageShape(layers=3, page_tokens=16, kv_heads=2, head_dim=8, dtype=torch.float32)


def test_page_bytes_are_what_the_pool_takes() -> None:
    """The sum by which pages are counted is the memory that they take, and they start at zero."""
    pool = PagePool(SHAPE, 5)
    tensors = [tensor for layer in pool.layers for tensor in (layer.keys, layer.values)]
    assert sum(tensor.numel() * tensor.element_size() for tensor in tensors) == 5 * SHAPE.bytes
    assert {tuple(tensor.shape) for tensor in tensors} == {(5, 16, 2, 8)}
    assert not any(tensor.any() for tensor in tensors)


def test_pages_fill_the_bytes() -> None:
    """As many pages as there is room for, page 0 among them."""
    assert pages_that_fit(SHAPE, 10 * SHAPE.bytes + 1, tokens_min=144) == 10
    with pytest.raises(StartError, match="holds 144 tokens; 145 are needed"):
        pages_that_fit(SHAPE, 10 * SHAPE.bytes + 1, tokens_min=145)


def test_available_memory_is_the_limit(tmp_path: Path) -> None:
    """One byte too many is refused with what is needed and what there is."""
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal:       99999999 kB\nMemAvailable:    2097152 kB\n")
    room = (2 << 30) - OVERHEAD_BYTES
    check_memory(room - 100, 100, tmp_path)
    with pytest.raises(StartError, match=r"needs 2,048 MiB .*KV cache 0 MiB.* and 2,048 MiB are available"):
        check_memory(room - 100, 101, tmp_path)


def test_unknown_memory_refuses_nothing(tmp_path: Path) -> None:
    """Where the system does not tell, loading is tried."""
    check_memory(1 << 60, 0, tmp_path / "absent")
