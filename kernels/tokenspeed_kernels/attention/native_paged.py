"""Paged attention by the native kernels of the CPU.

Pages are read where they lie. A query's result is the same to the last bit alone, in a batch, in a
chunk of any size and on any number of threads (native/src/cpu/ops_attention.h).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from tokenspeed_kernels.attention.rows import AttentionRows
from tokenspeed_kernels.native import ISA, check, ffi, floats, int64s, lib

if TYPE_CHECKING:
    from tokenspeed_kernels._native import CData


@dataclass(frozen=True, slots=True)
class StepCall:
    """The call for one step: `asked` names the rows, which live in `kept`; each layer adds its tensors."""

    asked: CData
    kept: tuple[torch.Tensor, ...]


def paged_attention(
    queries: torch.Tensor, key_pages: torch.Tensor, value_pages: torch.Tensor, rows: AttentionRows
) -> torch.Tensor:
    """Return [tokens, heads * head_dim]; arguments as in `PagedAttentionKernel`."""
    queries = queries.contiguous()
    tokens, heads, head_dim = queries.shape
    out = torch.empty(tokens, heads * head_dim)
    asked = rows.prepared(prepare, key_pages.shape[1]).asked
    asked.queries, asked.out = floats(queries), floats(out)
    asked.key_pages, asked.value_pages = floats(key_pages), floats(value_pages)
    asked.heads, asked.kv_heads, asked.head_dim = heads, key_pages.shape[2], head_dim
    check(lib.tsk_attend(asked, ISA))
    return out


def prepare(rows: AttentionRows, page_tokens: int) -> StepCall:
    """Return the call for a step of `rows`; its numbers may lie anyhow."""
    table, counts, contexts = rows.page_table.contiguous(), rows.queries.contiguous(), rows.context.contiguous()
    asked = ffi.new("tsk_attention *")
    asked.tables, asked.table_stride = int64s(table), table.shape[1]
    asked.counts, asked.contexts = int64s(counts), int64s(contexts)
    asked.rows, asked.page_tokens = len(counts), page_tokens
    return StepCall(asked, (table, counts, contexts))
