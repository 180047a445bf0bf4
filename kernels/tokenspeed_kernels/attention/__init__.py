"""Attention over pages of keys and values.

`attention.paged` takes one step whose rows may prefill (many queries) or decode (one query), each
with its own context, through page tables. Query j of a row with c tokens of context sees positions
0 to c + j. Query heads share key heads in groups: query head h reads key head h // (heads /
kv_heads). The step's own keys and values are in the pages already.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar, cast

import torch

from tokenspeed_kernels.platforms import CPU, REFERENCE_DTYPES
from tokenspeed_kernels.selection import Selector
from tokenspeed_kernels.spec import KernelSpec, ask

Prepared = TypeVar("Prepared")


class AttentionRows:
    """Where the rows of one step lie: built once, read by every layer.

    `queries` and `context` are int64 [rows] on the CPU: tokens of a row in this step, and tokens in
    the pages before them. `page_table` is int64 [rows, pages]: entry i of a row holds positions
    [i * page_tokens, (i + 1) * page_tokens); entries behind the last position are 0. Rows follow
    each other in the step's tokens.
    """

    def __init__(self, queries: torch.Tensor, context: torch.Tensor, page_table: torch.Tensor) -> None:
        """Keep the three tensors; the caller no longer writes to them."""
        self.queries = queries
        self.context = context
        self.page_table = page_table
        self._prepared: dict[object, object] = {}

    def prepared(self, prepare: Callable[[AttentionRows, int], Prepared], page_tokens: int) -> Prepared:
        """Return `prepare(self, page_tokens)`, computed by the first layer that asks."""
        if prepare not in self._prepared:
            self._prepared[prepare] = prepare(self, page_tokens)
        return cast("Prepared", self._prepared[prepare])


StepRows = AttentionRows


class PagedAttentionKernel(Protocol):
    """Attends for all rows of a step."""

    def __call__(
        self, queries: torch.Tensor, key_pages: torch.Tensor, value_pages: torch.Tensor, rows: AttentionRows
    ) -> torch.Tensor:
        """Return [tokens, heads * head_dim].

        `queries` is [tokens, heads, head_dim], pages are [pages, page_tokens, kv_heads, head_dim]
        and hold only finite numbers. Scores are scaled by head_dim ** -0.5.
        """
        ...


def paged_attention(kernels: Selector, dtype: torch.dtype, head_dim: int) -> PagedAttentionKernel:
    """Return the kernel of `attention.paged`."""
    return kernels.select_kernel(ask("attention", "paged", dtype, head_dim=head_dim))


SPECS = (
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
)
