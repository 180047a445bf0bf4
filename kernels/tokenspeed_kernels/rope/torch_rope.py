"""Rotary embedding and KV store in torch."""

from __future__ import annotations

import torch


def rope_store(
    qkv: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    key_pages: torch.Tensor,
    value_pages: torch.Tensor,
    places: torch.Tensor,
) -> torch.Tensor:
    """Rotate, store and return the queries; shapes as in `RopeStoreKernel`."""
    kv_heads, head_dim = key_pages.shape[-2:]
    heads = qkv.shape[1] - 2 * kv_heads
    turning = qkv[:, : heads + kv_heads]
    halves = turning.roll(head_dim // 2, dims=-1)
    turned = torch.addcmul(turning * cos.unsqueeze(1), halves, sin.unsqueeze(1))
    key_pages.view(-1, kv_heads, head_dim).index_copy_(0, places, turned[:, heads:])
    value_pages.view(-1, kv_heads, head_dim).index_copy_(0, places, qkv[:, heads + kv_heads :])
    return turned[:, :heads]
