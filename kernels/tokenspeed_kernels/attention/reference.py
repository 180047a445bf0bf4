"""Paged attention, written to be read: it defines what is right.

One row after the other, softmax over explicit scores. See `sdpa_cpu` for the fast one.
"""

from __future__ import annotations

import torch

from tokenspeed_kernels.attention import AttentionRows


def paged_attention(
    queries: torch.Tensor, key_pages: torch.Tensor, value_pages: torch.Tensor, rows: AttentionRows
) -> torch.Tensor:
    """Return [tokens, heads * head_dim]; arguments as in `PagedAttentionKernel`."""
    group = queries.shape[1] // key_pages.shape[2]
    outputs = []
    first = 0
    for count, context, table in zip(rows.queries.tolist(), rows.context.tolist(), rows.page_table, strict=True):
        keys = key_pages[table].flatten(0, 1)[: context + count].repeat_interleave(group, dim=1)
        values = value_pages[table].flatten(0, 1)[: context + count].repeat_interleave(group, dim=1)
        outputs.append(_attend(queries[first : first + count], keys, values, context))
        first += count
    return torch.cat(outputs).flatten(1)


def _attend(queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, context: int) -> torch.Tensor:
    scores = torch.einsum("qhd,khd->hqk", queries, keys) * queries.shape[-1] ** -0.5
    seen = torch.ones(scores.shape[1:], dtype=torch.bool).tril(context)
    weights = scores.masked_fill(~seen, float("-inf")).softmax(dim=-1)
    return torch.einsum("hqk,khd->qhd", weights, values)
