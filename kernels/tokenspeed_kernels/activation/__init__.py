"""Gated activations.

`activation.silu_mul`: the gate and up halves of a SwiGLU block lie side by side, [tokens, 2 * n];
the result is silu(gate) * up, [tokens, n] (Shazeer, "GLU Variants Improve Transformer", 2020).
"""

from __future__ import annotations

from typing import Protocol

import torch

from tokenspeed_kernels.platforms import CPU, GPU, GPU_DTYPES, NATIVE_DTYPES, REFERENCE_DTYPES, with_early_start
from tokenspeed_kernels.selection import Selector
from tokenspeed_kernels.spec import KernelSpec, ask


class GatedKernel(Protocol):
    """Folds [tokens, 2 * n] into [tokens, n]."""

    def __call__(self, gate_up: torch.Tensor) -> torch.Tensor:
        """Compute; `gate_up` is [tokens, 2 * n]."""
        ...


def silu_mul(kernels: Selector, dtype: torch.dtype) -> GatedKernel:
    """Return the kernel of `activation.silu_mul`."""
    return kernels.select_kernel(ask("activation", "silu_mul", dtype))


SPECS = (
    KernelSpec(
        name="native_silu_mul",
        family="activation",
        mode="silu_mul",
        solution="native",
        entry="tokenspeed_kernels.activation.native_silu:silu_mul",
        capability=CPU,
        dtypes=NATIVE_DTYPES,
        priority=20,
        tags=frozenset({"latency", "throughput"}),
    ),
    KernelSpec(
        name="torch_silu_mul",
        family="activation",
        mode="silu_mul",
        solution="torch",
        entry="tokenspeed_kernels.activation.torch_silu:silu_mul",
        capability=CPU,
        dtypes=REFERENCE_DTYPES,
        tags=frozenset({"reference"}),
    ),
    *with_early_start(
        KernelSpec(
            name="triton_silu_mul",
            family="activation",
            mode="silu_mul",
            solution="triton",
            entry="tokenspeed_kernels.activation.triton_silu:silu_mul",
            requires=("triton",),
            capability=GPU,
            dtypes=GPU_DTYPES,
            priority=10,
            tags=frozenset({"latency"}),
        ),
    ),
)
