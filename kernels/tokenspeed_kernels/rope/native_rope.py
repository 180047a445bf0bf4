"""Rotary embedding and KV store by the native kernels of the CPU."""

from __future__ import annotations

import torch

from tokenspeed_kernels.native import ISA, check, floats, int64s, lib


def rope_store(
    qkv: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    key_pages: torch.Tensor,
    value_pages: torch.Tensor,
    places: torch.Tensor,
) -> torch.Tensor:
    """Rotate, store and return the queries; shapes as in `RopeStoreKernel`."""
    qkv, places = qkv.contiguous(), places.contiguous()
    kv_heads, head_dim = key_pages.shape[-2:]
    heads = qkv.shape[1] - 2 * kv_heads
    queries = torch.empty(qkv.shape[0], heads, head_dim)
    check(
        lib.tsk_rope_store(
            floats(qkv),
            qkv.shape[0],
            heads,
            kv_heads,
            head_dim,
            floats(cos),
            floats(sin),
            floats(key_pages),
            floats(value_pages),
            int64s(places),
            floats(queries),
            ISA,
        )
    )
    return queries
