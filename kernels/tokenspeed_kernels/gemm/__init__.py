"""Matrix products with weights.

The question `gemm.linear`: x [tokens, in] times a weight [in, out], giving [tokens, out]. The
weight lies the other way round than in checkpoints: so BLAS on the CPU multiplies it up to a third
faster when tokens are few.
"""

from __future__ import annotations

from typing import Protocol

import torch

from tokenspeed_kernels.platforms import CPU, REFERENCE_DTYPES
from tokenspeed_kernels.selection import Selector
from tokenspeed_kernels.spec import KernelSpec, ask


class LinearKernel(Protocol):
    """Multiplies x [tokens, in] by a weight."""

    def __call__(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """Return [tokens, out]; `weight` is [in, out]."""
        ...


def linear(kernels: Selector, dtype: torch.dtype) -> LinearKernel:
    """Return the kernel of `gemm.linear`."""
    return kernels.select_kernel(ask("gemm", "linear", dtype))


def head(kernels: Selector, dtype: torch.dtype) -> LinearKernel:
    """Return linear."""
    return linear(kernels, dtype)


SPECS = (
    KernelSpec(
        name="torch_linear",
        family="gemm",
        mode="linear",
        solution="torch",
        entry="tokenspeed_kernels.gemm.torch_linear:linear",
        capability=CPU,
        dtypes=REFERENCE_DTYPES,
        tags=frozenset({"reference"}),
    ),
)
