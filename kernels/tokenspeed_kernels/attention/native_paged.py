"""Paged attention by the native kernels of the CPU.

Pages are read where they lie. A query's result is the same to the last bit alone, in a batch, in a
chunk of any size and on any number of threads (native/src/cpu/ops_attention.h).
"""

from __future__ import annotations

import torch

from tokenspeed_kernels.attention.rows import AttentionRows
from tokenspeed_kernels.native import ISA, check, ffi, floats, int64s, lib


def paged_attention(
    queries: torch.Tensor, key_pages: torch.Tensor, value_pages: torch.Tensor, rows: AttentionRows
) -> torch.Tensor:
    """Return [tokens, heads * head_dim]; arguments as in `PagedAttentionKernel`."""
    queries = queries.contiguous()
    tokens, heads, head_dim = queries.shape
    page_tokens, kv_heads = key_pages.shape[1:3]
    out = torch.empty(tokens, heads * head_dim)
    table = rows.page_table
    asked = ffi.new(
        "tsk_attention *",
        (
            floats(queries),
            floats(key_pages),
            floats(value_pages),
            int64s(table),
            table.stride(0),
            int64s(rows.queries),
            int64s(rows.context),
            floats(out),
            len(rows.queries),
            page_tokens,
            heads,
            kv_heads,
            head_dim,
        ),
    )
    check(lib.tsk_attend(asked, ISA))
    return out
