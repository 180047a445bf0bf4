"""Products with weights through torch's BLAS."""

from __future__ import annotations

import torch

HALVES = (torch.bfloat16, torch.float16)


def linear(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Return x [tokens, in] times `weight` [in, out]."""
    return torch.mm(x, weight)


def head(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Return x [rows, hidden] times `weight` [hidden, vocab] as it was summed, in float32 or wider."""
    if x.dtype in HALVES:
        return torch.mm(x, weight, out_dtype=torch.float32)
    return torch.mm(x, weight)
