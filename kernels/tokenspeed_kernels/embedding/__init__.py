"""Vectors of tokens by id.

The table lies as `gemm.linear` wants its weights, [hidden, vocab], since a tied table is both; on a
GPU that is the transposed view of [vocab, hidden], and a lookup copies whole rows.
`embedding.lookup` works on a slice of the vocabulary: ids outside of [first, first + columns) give
zeros, so that the sum over all slices is the whole lookup.
"""

from __future__ import annotations

from typing import Protocol

import torch

from tokenspeed_kernels.gemm.packed_weight import PackedWeight
from tokenspeed_kernels.platforms import CPU, GPU, GPU_DTYPES, REFERENCE_DTYPES
from tokenspeed_kernels.selection import Selector
from tokenspeed_kernels.spec import KernelSpec, ask


class LookupKernel(Protocol):
    """Looks ids up in a slice of the table."""

    def __call__(self, ids: torch.Tensor, table: torch.Tensor, first: int) -> torch.Tensor:
        """Return [tokens, hidden].

        `ids` is int64 [tokens], on a GPU also int32; `table` is [hidden, columns] and starts at id
        `first`.
        """
        ...


def lookup(kernels: Selector, dtype: torch.dtype, sliced: bool) -> LookupKernel:
    """Return the kernel for a whole table or for a slice of one."""
    return kernels.select_kernel(ask("embedding", "lookup", dtype, table="slice" if sliced else "whole"))


class PackedLookupKernel(Protocol):
    """Looks ids up in a packed table."""

    def __call__(self, ids: torch.Tensor, table: PackedWeight) -> torch.Tensor:
        """Return float32 [tokens, hidden] for int64 `ids` [tokens] of a `table` [vocab, hidden]."""
        ...


def packed_lookup(kernels: Selector) -> PackedLookupKernel:
    """Return the kernel for a table that stays quantised."""
    return kernels.select_kernel(ask("embedding", "packed_lookup", torch.float32))


SPECS = (
    *(
        KernelSpec(
            name=f"{solution}_packed_lookup",
            family="embedding",
            mode="packed_lookup",
            solution=solution,
            entry=f"tokenspeed_kernels.gemm.{solution}_packed:packed_lookup",
            capability=CPU,
            dtypes=frozenset({torch.float32}),
            priority=priority,
            tags=frozenset({tag}),
        )
        for solution, priority, tag in (("torch", 0, "reference"), ("native", 10, "latency"))
    ),
    KernelSpec(
        name="torch_lookup",
        family="embedding",
        mode="lookup",
        solution="torch",
        entry="tokenspeed_kernels.embedding.torch_lookup:lookup",
        capability=CPU,
        dtypes=REFERENCE_DTYPES,
        traits={"table": frozenset({"whole"})},
        tags=frozenset({"reference"}),
    ),
    KernelSpec(
        name="torch_lookup_slice",
        family="embedding",
        mode="lookup",
        solution="torch",
        entry="tokenspeed_kernels.embedding.torch_lookup:lookup_slice",
        capability=CPU,
        dtypes=REFERENCE_DTYPES,
        traits={"table": frozenset({"slice"})},
        tags=frozenset({"reference"}),
    ),
    KernelSpec(
        name="torch_row_lookup",
        family="embedding",
        mode="lookup",
        solution="torch",
        entry="tokenspeed_kernels.embedding.torch_lookup:row_lookup",
        capability=GPU,
        dtypes=GPU_DTYPES,
        traits={"table": frozenset({"whole"})},
    ),
    KernelSpec(
        name="torch_row_lookup_slice",
        family="embedding",
        mode="lookup",
        solution="torch",
        entry="tokenspeed_kernels.embedding.torch_lookup:row_lookup_slice",
        capability=GPU,
        dtypes=GPU_DTYPES,
        traits={"table": frozenset({"slice"})},
    ),
)
