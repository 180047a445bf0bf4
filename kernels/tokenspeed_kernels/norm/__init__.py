"""Root-mean-square normalisation (Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019).

`norm.rms`: y = x / sqrt(mean(x^2) + eps) * weight over the last axis. `norm.add_rms`: the same on
x + residual, which is returned beside it, since every block of a transformer needs both.
"""

from __future__ import annotations

from typing import Protocol

import torch

from tokenspeed_kernels.platforms import CPU, GPU, GPU_DTYPES, NATIVE_DTYPES, REFERENCE_DTYPES, with_early_start
from tokenspeed_kernels.selection import Selector
from tokenspeed_kernels.spec import KernelSpec, ask


class RmsNormKernel(Protocol):
    """Normalises x [tokens, hidden]."""

    def __call__(self, x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        """Return [tokens, hidden]; `weight` is [hidden]."""
        ...


class AddRmsNormKernel(Protocol):
    """Normalises x + residual, both [tokens, hidden]."""

    def __call__(
        self, x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return (normalised, x + residual). May write the sum into `x`: the caller gives it up."""
        ...


def rms_norm(kernels: Selector, dtype: torch.dtype) -> RmsNormKernel:
    """Return the kernel of `norm.rms`."""
    return kernels.select_kernel(ask("norm", "rms", dtype))


def add_rms_norm(kernels: Selector, dtype: torch.dtype) -> AddRmsNormKernel:
    """Return the kernel of `norm.add_rms`."""
    return kernels.select_kernel(ask("norm", "add_rms", dtype))


SPECS = (
    KernelSpec(
        name="native_add_rms_norm",
        family="norm",
        mode="add_rms",
        solution="native",
        entry="tokenspeed_kernels.norm.native_rms:add_rms_norm",
        capability=CPU,
        dtypes=NATIVE_DTYPES,
        priority=20,
        tags=frozenset({"latency", "throughput"}),
    ),
    KernelSpec(
        name="native_rms_norm",
        family="norm",
        mode="rms",
        solution="native",
        entry="tokenspeed_kernels.norm.native_rms:rms_norm",
        capability=CPU,
        dtypes=NATIVE_DTYPES,
        priority=20,
        tags=frozenset({"latency", "throughput"}),
    ),
    KernelSpec(
        name="torch_rms_norm",
        family="norm",
        mode="rms",
        solution="torch",
        entry="tokenspeed_kernels.norm.torch_rms:rms_norm",
        capability=CPU,
        dtypes=REFERENCE_DTYPES,
        tags=frozenset({"reference"}),
    ),
    KernelSpec(
        name="torch_add_rms_norm",
        family="norm",
        mode="add_rms",
        solution="torch",
        entry="tokenspeed_kernels.norm.torch_rms:add_rms_norm",
        capability=CPU,
        dtypes=REFERENCE_DTYPES,
        tags=frozenset({"reference"}),
    ),
    *with_early_start(
        KernelSpec(
            name="triton_rms_norm",
            family="norm",
            mode="rms",
            solution="triton",
            entry="tokenspeed_kernels.norm.triton_rms:rms_norm",
            requires=("triton",),
            capability=GPU,
            dtypes=GPU_DTYPES,
            priority=10,
            tags=frozenset({"latency"}),
        ),
    ),
    *with_early_start(
        KernelSpec(
            name="triton_add_rms_norm",
            family="norm",
            mode="add_rms",
            solution="triton",
            entry="tokenspeed_kernels.norm.triton_rms:add_rms_norm",
            requires=("triton",),
            capability=GPU,
            dtypes=GPU_DTYPES,
            priority=10,
            tags=frozenset({"latency"}),
        ),
    ),
)
