"""RMS normalisation by the native kernels of the CPU."""

from __future__ import annotations

import torch

from tokenspeed_kernels.native import ISA, check, ffi, floats, lib


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """Return x / sqrt(mean(x^2) + eps) * weight; x is [tokens, hidden]."""
    x = x.contiguous()
    out = torch.empty_like(x)
    rows, hidden = x.shape
    check(lib.tsk_rms_norm(floats(x), ffi.NULL, floats(weight), eps, rows, hidden, floats(out), ISA))
    return out


def add_rms_norm(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the norm of x + residual, and the sum; the sum is written into `x`."""
    x, residual = x.contiguous(), residual.contiguous()
    out = torch.empty_like(x)
    rows, hidden = x.shape
    check(lib.tsk_rms_norm(floats(x), floats(residual), floats(weight), eps, rows, hidden, floats(out), ISA))
    return out, x
