"""Matrix products with weights.

The question `gemm.linear`: x [tokens, in] times a weight, giving [tokens, out]. The trait `weight`
says how the weight lies in memory: "out_in" as in checkpoints (rows can be looked up, so a tied
embedding lies this way), or "in_out", which BLAS on the CPU multiplies up to twice as fast when
tokens are few.
"""

from __future__ import annotations

from typing import Protocol

import torch

from tokenspeed_kernels.platforms import CPU, REFERENCE_DTYPES
from tokenspeed_kernels.selection import Selector
from tokenspeed_kernels.spec import KernelSpec, ask


class LinearKernel(Protocol):
    """Returns x [tokens, in] times `weight`: [tokens, out]."""

    def __call__(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """Compute; `weight` is [out, in] or [in, out], as was asked."""
        ...


def linear(kernels: Selector, dtype: torch.dtype, weight: str) -> LinearKernel:
    """Return the kernel for weights that lie "out_in" or "in_out"."""
    return kernels.select_kernel(ask("gemm", "linear", dtype, weight=weight))


SPECS = (
    KernelSpec(
        name="torch_linear_out_in",
        family="gemm",
        mode="linear",
        solution="torch",
        entry="tokenspeed_kernels.gemm.torch_linear:linear_out_in",
        capability=CPU,
        dtypes=REFERENCE_DTYPES,
        traits={"weight": frozenset({"out_in"})},
        tags=frozenset({"reference"}),
    ),
    KernelSpec(
        name="torch_linear_in_out",
        family="gemm",
        mode="linear",
        solution="torch",
        entry="tokenspeed_kernels.gemm.torch_linear:linear_in_out",
        capability=CPU,
        dtypes=REFERENCE_DTYPES,
        traits={"weight": frozenset({"in_out"})},
        tags=frozenset({"reference"}),
    ),
)
