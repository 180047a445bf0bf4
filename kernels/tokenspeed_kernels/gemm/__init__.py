"""Matrix products with weights.

`gemm.linear`: x [tokens, in] times a weight [in, out], giving [tokens, out]. `gemm.head` is the
same for logits, which stay as they were summed, in float32: they decide between tokens.
`gemm.packed` multiplies with a weight that stays quantised (`packed_weight.py`), logits included.

On the CPU the weight lies the other way round than in checkpoints: so BLAS multiplies it up to a
third faster when tokens are few. On a GPU it lies as in checkpoints, [out, in], and is handed over
as the transposed view, strides (1, in): so every load runs along the inputs.
"""

from __future__ import annotations

from typing import Protocol

import torch

from tokenspeed_kernels.gemm.packed_weight import PackedWeight
from tokenspeed_kernels.platforms import CPU, GPU, GPU_DTYPES, REFERENCE_DTYPES, with_early_start
from tokenspeed_kernels.selection import Selector
from tokenspeed_kernels.spec import KernelSpec, ask


class LinearKernel(Protocol):
    """Multiplies x [tokens, in] by a weight."""

    def __call__(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """Return [tokens, out]; `weight` is [in, out]."""
        ...


class HeadKernel(Protocol):
    """Multiplies x [rows, hidden] by the head's weight."""

    def __call__(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """Return float32 logits [rows, vocab] (float64 for float64); `weight` is [hidden, vocab]."""
        ...


class PackedKernel(Protocol):
    """Multiplies x [rows, inputs] by a packed weight."""

    def __call__(self, x: torch.Tensor, weight: PackedWeight) -> torch.Tensor:
        """Return float32 [rows, outputs]; x is rounded to 8 bits in blocks of 32 inputs."""
        ...


def linear(kernels: Selector, dtype: torch.dtype) -> LinearKernel:
    """Return the kernel of `gemm.linear`."""
    return kernels.select_kernel(ask("gemm", "linear", dtype))


def head(kernels: Selector, dtype: torch.dtype) -> HeadKernel:
    """Return the kernel of `gemm.head`."""
    return kernels.select_kernel(ask("gemm", "head", dtype))


def packed(kernels: Selector) -> PackedKernel:
    """Return the kernel of `gemm.packed`."""
    return kernels.select_kernel(ask("gemm", "packed", torch.float32))


_PACKED = tuple(
    KernelSpec(
        name=f"{solution}_packed",
        family="gemm",
        mode="packed",
        solution=solution,
        entry=f"tokenspeed_kernels.gemm.{solution}_packed:packed",
        capability=CPU,
        dtypes=frozenset({torch.float32}),
        priority=priority,
        tags=frozenset({tag}),
    )
    for solution, priority, tag in (("torch", 0, "reference"), ("native", 10, "latency"))
)
SPECS = _PACKED + tuple(
    spec
    for mode in ("linear", "head")
    for spec in (
        KernelSpec(
            name=f"torch_{mode}",
            family="gemm",
            mode=mode,
            solution="torch",
            entry=f"tokenspeed_kernels.gemm.torch_linear:{mode}",
            capability=CPU,
            dtypes=REFERENCE_DTYPES,
            tags=frozenset({"reference"}),
        ),
        KernelSpec(
            name=f"cublas_{mode}",
            family="gemm",
            mode=mode,
            solution="torch",
            entry=f"tokenspeed_kernels.gemm.torch_linear:{mode}",
            capability=GPU,
            dtypes=GPU_DTYPES,
        ),
        *with_early_start(
            KernelSpec(
                name=f"triton_skinny_{mode}",
                family="gemm",
                mode=mode,
                solution="triton",
                entry=f"tokenspeed_kernels.gemm.triton_skinny:{mode}",
                requires=("triton",),
                capability=GPU,
                dtypes=GPU_DTYPES,
                priority=10,
                tags=frozenset({"latency"}),
            ),
        ),
    )
)
