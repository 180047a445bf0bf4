"""Paged attention, written to be read: it defines what is right.

One row after the other, softmax over explicit scores. See `sdpa_cpu` and `triton_decode` for fast ones.
"""

from __future__ import annotations

import torch

from tokenspeed_kernels.attention.rows import AttentionRows, DecodeRows, ExtendRows


def paged_attention(
    queries: torch.Tensor, key_pages: torch.Tensor, value_pages: torch.Tensor, rows: AttentionRows
) -> torch.Tensor:
    """Return [tokens, heads * head_dim]; arguments as in `PagedAttentionKernel`."""
    group = queries.shape[1] // key_pages.shape[2]
    outputs = []
    first = 0
    for count, context, table in zip(rows.queries.tolist(), rows.context.tolist(), rows.page_table, strict=True):
        needed = table[: -(-(context + count) // key_pages.shape[1])]
        keys = key_pages[needed].flatten(0, 1)[: context + count].repeat_interleave(group, dim=1)
        values = value_pages[needed].flatten(0, 1)[: context + count].repeat_interleave(group, dim=1)
        outputs.append(_attend(queries[first : first + count], keys, values, context))
        first += count
    return torch.cat(outputs).flatten(1)


def decode_attention(
    queries: torch.Tensor,
    key_pages: torch.Tensor,
    value_pages: torch.Tensor,
    rows: DecodeRows,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return [rows, heads * head_dim]; arguments as in `DecodeKernel`."""
    table = rows.page_table[rows.slots.long()].long()
    same = AttentionRows(torch.ones_like(rows.positions), rows.positions, table)
    attended = paged_attention(queries, key_pages, value_pages, same)
    return attended if out is None else out.copy_(attended)


def extend_attention(
    queries: torch.Tensor,
    key_pages: torch.Tensor,
    value_pages: torch.Tensor,
    rows: ExtendRows,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return [tokens, heads * head_dim]; arguments as in `ExtendKernel`."""
    counts, contexts, table = map(torch.from_numpy, (rows.counts, rows.contexts, rows.table))
    attended = paged_attention(queries, key_pages, value_pages, AttentionRows(counts, contexts, table.long()))
    return attended if out is None else out.copy_(attended)


def _attend(queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, context: int) -> torch.Tensor:
    scores = torch.einsum("qhd,khd->hqk", queries, keys) * queries.shape[-1] ** -0.5
    seen = torch.ones(scores.shape[1:], dtype=torch.bool).tril(context)
    weights = scores.masked_fill(~seen, float("-inf")).softmax(dim=-1)
    return torch.einsum("hqk,khd->qhd", weights, values)
