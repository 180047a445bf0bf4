"""Products with weights through torch's BLAS."""

from __future__ import annotations

import torch


def linear_out_in(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Return x [tokens, in] times the transpose of `weight` [out, in]."""
    return torch.nn.functional.linear(x, weight)


def linear_in_out(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Return x [tokens, in] times `weight` [in, out]."""
    return torch.mm(x, weight)
