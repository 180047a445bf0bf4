"""Gated activations by the native kernels of the CPU."""

from __future__ import annotations

import torch

from tokenspeed_kernels.native import ISA, check, floats, lib


def silu_mul(gate_up: torch.Tensor) -> torch.Tensor:
    """Return silu(gate) * up of `gate_up` [tokens, 2 * n]."""
    gate_up = gate_up.contiguous()
    rows, n = gate_up.shape[0], gate_up.shape[1] // 2
    out = torch.empty(rows, n)
    check(lib.tsk_silu_mul(floats(gate_up), rows, n, floats(out), ISA))
    return out
