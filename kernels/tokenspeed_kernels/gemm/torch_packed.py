"""The product with a packed weight in torch: what the native one is held to."""

from __future__ import annotations

import torch

from tokenspeed_kernels.gemm.packed_weight import BLOCK, PackedWeight, unpack

LEVELS = 127.0


def packed(x: torch.Tensor, weight: PackedWeight) -> torch.Tensor:
    """Return x [rows, inputs], rounded to 8 bits in blocks of 32, times `weight`: [rows, outputs]."""
    return torch.mm(rounded(x), unpack(weight).t())


def rounded(x: torch.Tensor) -> torch.Tensor:
    """Return float32 x [rows, inputs] as 8 bits hold it: of a block, the largest number becomes 127."""
    blocks = x.reshape(len(x), -1, BLOCK)
    scale = blocks.abs().amax(dim=2, keepdim=True) / LEVELS
    inverse = torch.where(scale >= 1e-35, 1 / scale, 0.0)
    return ((blocks * inverse).round() * scale).view(x.shape)


def packed_lookup(ids: torch.Tensor, table: PackedWeight) -> torch.Tensor:
    """Return the rows `ids` of `table` as [tokens, inputs]."""
    return unpack(table).index_select(0, ids)
