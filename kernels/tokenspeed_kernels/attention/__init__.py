"""Attention over pages of keys and values.

`attention.decode` takes rows of one query each, whose tables and positions lie in device memory;
`attention.extend` rows of several queries, which the host knows; `attention.paged` a whole step.
Query heads share key heads in groups: query head h reads key head h // (heads / kv_heads). A step's
own keys and values are in the pages already. Scores are scaled by head_dim ** -0.5. What stands in a
page behind a row's last position never matters.

On a device a whole step is answered by the two others, see `SlotAttention`.
"""

from __future__ import annotations

from typing import Protocol

import torch

from tokenspeed_kernels.attention.rows import AttentionRows, DecodeRows, ExtendRows, SlotRows
from tokenspeed_kernels.platforms import CPU, GPU, GPU_DTYPES, HALF_DTYPES, NATIVE_DTYPES, REFERENCE_DTYPES
from tokenspeed_kernels.selection import Selector
from tokenspeed_kernels.spec import KernelError, KernelSpec, ask

__all__ = [
    "SPECS",
    "AttentionRows",
    "DecodeKernel",
    "DecodeRows",
    "ExtendKernel",
    "ExtendRows",
    "PagedAttentionKernel",
    "SlotAttention",
    "SlotRows",
    "StepRows",
    "decode_attention",
    "extend_attention",
    "paged_attention",
]


class DecodeKernel(Protocol):
    """Attends for rows of one query each."""

    def __call__(
        self,
        queries: torch.Tensor,
        key_pages: torch.Tensor,
        value_pages: torch.Tensor,
        rows: DecodeRows,
        out: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Return [rows, heads * head_dim], which is `out` if that is given.

        `queries` is [rows, heads, head_dim], pages are [pages, page_tokens, kv_heads, head_dim], all
        contiguous and of one dtype. Nothing is read back to the host: a graph may capture the call.
        """
        ...


class ExtendKernel(Protocol):
    """Attends for rows of several queries each."""

    def __call__(
        self,
        queries: torch.Tensor,
        key_pages: torch.Tensor,
        value_pages: torch.Tensor,
        rows: ExtendRows,
        out: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Return [tokens, heads * head_dim], which is `out` if that is given; shapes as in decode."""
        ...


# What a step is described by: on the CPU, and on a device.
StepRows = AttentionRows | SlotRows


class PagedAttentionKernel(Protocol):
    """Attends for all rows of a step."""

    def __call__(
        self, queries: torch.Tensor, key_pages: torch.Tensor, value_pages: torch.Tensor, rows: StepRows
    ) -> torch.Tensor:
        """Return [tokens, heads * head_dim].

        `queries` is [tokens, heads, head_dim], pages are [pages, page_tokens, kv_heads, head_dim]
        and hold only finite numbers. `rows` are `AttentionRows` on the CPU and `SlotRows` on a GPU.
        """
        ...


class SlotAttention:
    """A whole step on a device. A step of one kind of rows is one call and no copy."""

    def __init__(self, decode: DecodeKernel, extend: ExtendKernel) -> None:
        """Take the kernels of the two kinds of rows."""
        self._decode = decode
        self._extend = extend

    def __call__(
        self, queries: torch.Tensor, key_pages: torch.Tensor, value_pages: torch.Tensor, rows: StepRows
    ) -> torch.Tensor:
        """Return [tokens, heads * head_dim]; arguments as in `PagedAttentionKernel`."""
        if not isinstance(rows, SlotRows):
            raise KernelError("attention on a device takes SlotRows.")
        if rows.extend is None and rows.decode is not None:
            return self._decode(queries, key_pages, value_pages, rows.decode)
        if rows.decode is None and rows.extend is not None:
            return self._extend(queries, key_pages, value_pages, rows.extend)
        if rows.decode is None or rows.extend is None:
            raise KernelError("a step without rows was to attend.")
        out = queries.new_empty(queries.shape[0], queries.shape[1] * queries.shape[2])
        count = rows.decode.count
        self._decode(queries[:count], key_pages, value_pages, rows.decode, out[:count])
        self._extend(queries[count:], key_pages, value_pages, rows.extend, out[count:])
        return out


def decode_attention(kernels: Selector, dtype: torch.dtype, head_dim: int) -> DecodeKernel:
    """Return the kernel of `attention.decode`."""
    return kernels.select_kernel(ask("attention", "decode", dtype, head_dim=head_dim))


def extend_attention(kernels: Selector, dtype: torch.dtype, head_dim: int) -> ExtendKernel:
    """Return the kernel of `attention.extend`."""
    return kernels.select_kernel(ask("attention", "extend", dtype, head_dim=head_dim))


def paged_attention(kernels: Selector, dtype: torch.dtype, head_dim: int) -> PagedAttentionKernel:
    """Return what attends for a whole step; layers call this one."""
    if kernels.platform.device == "cuda":
        return SlotAttention(decode_attention(kernels, dtype, head_dim), extend_attention(kernels, dtype, head_dim))
    return kernels.select_kernel(ask("attention", "paged", dtype, head_dim=head_dim))


# Head sizes that the Triton kernels are tested with; others than powers of two are padded to one.
TRITON_HEAD_DIMS = frozenset({16, 32, 64, 80, 96, 128, 256})

SPECS = (
    KernelSpec(
        name="native_paged_attention",
        family="attention",
        mode="paged",
        solution="native",
        entry="tokenspeed_kernels.attention.native_paged:paged_attention",
        capability=CPU,
        dtypes=NATIVE_DTYPES,
        traits={"head_dim": range(8, 257, 8)},
        priority=20,
        tags=frozenset({"latency", "throughput"}),
    ),
    KernelSpec(
        name="torch_paged_attention",
        family="attention",
        mode="paged",
        solution="reference",
        entry="tokenspeed_kernels.attention.reference:paged_attention",
        capability=CPU,
        dtypes=REFERENCE_DTYPES,
        tags=frozenset({"reference"}),
    ),
    KernelSpec(
        name="sdpa_paged_attention",
        family="attention",
        mode="paged",
        solution="sdpa",
        entry="tokenspeed_kernels.attention.sdpa_cpu:paged_attention",
        capability=CPU,
        dtypes=REFERENCE_DTYPES,
        priority=10,
        tags=frozenset({"latency", "throughput"}),
    ),
    KernelSpec(
        name="torch_decode_attention",
        family="attention",
        mode="decode",
        solution="reference",
        entry="tokenspeed_kernels.attention.reference:decode_attention",
        capability=CPU,
        dtypes=REFERENCE_DTYPES,
        tags=frozenset({"reference"}),
    ),
    KernelSpec(
        name="triton_decode_attention",
        family="attention",
        mode="decode",
        solution="triton",
        entry="tokenspeed_kernels.attention.triton_decode:decode_attention",
        capability=GPU,
        dtypes=GPU_DTYPES,
        traits={"head_dim": TRITON_HEAD_DIMS},
        priority=10,
        tags=frozenset({"latency", "throughput"}),
        requires=("triton",),
    ),
    KernelSpec(
        name="torch_extend_attention",
        family="attention",
        mode="extend",
        solution="reference",
        entry="tokenspeed_kernels.attention.reference:extend_attention",
        capability=CPU,
        dtypes=REFERENCE_DTYPES,
        tags=frozenset({"reference"}),
    ),
    KernelSpec(
        name="triton_extend_attention",
        family="attention",
        mode="extend",
        solution="triton",
        entry="tokenspeed_kernels.attention.triton_extend:extend_attention",
        capability=GPU,
        dtypes=GPU_DTYPES,
        traits={"head_dim": TRITON_HEAD_DIMS},
        priority=10,
        tags=frozenset({"latency", "throughput"}),
        requires=("triton",),
    ),
    KernelSpec(
        name="flashinfer_extend_attention",
        family="attention",
        mode="extend",
        solution="flashinfer",
        entry="tokenspeed_kernels.attention.flashinfer_extend:extend_attention",
        capability=GPU,
        dtypes=HALF_DTYPES,
        traits={"head_dim": frozenset({64, 128, 256})},
        priority=20,
        tags=frozenset({"latency", "throughput"}),
        requires=("flashinfer", "triton"),
    ),
)
