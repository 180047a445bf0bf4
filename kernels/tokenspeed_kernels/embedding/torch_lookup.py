"""Table lookup in torch."""

from __future__ import annotations

import torch


def lookup(ids: torch.Tensor, table: torch.Tensor, first: int) -> torch.Tensor:
    """Return the columns `ids` of a whole `table` as rows; `first` is 0."""
    return table.index_select(1, ids).t().contiguous()


def lookup_slice(ids: torch.Tensor, table: torch.Tensor, first: int) -> torch.Tensor:
    """Return the columns of `ids` that lie in this slice, zeros for the others, as rows."""
    local = ids - first
    foreign = (local < 0) | (local >= table.shape[1])
    rows = lookup(local.masked_fill(foreign, 0), table, 0)
    return rows.masked_fill_(foreign.unsqueeze(1), 0.0)


def row_lookup(ids: torch.Tensor, table: torch.Tensor, first: int) -> torch.Tensor:
    """Return the columns `ids` of a whole `table`, the transposed view of [columns, hidden], as rows."""
    return table.t().index_select(0, ids)


def row_lookup_slice(ids: torch.Tensor, table: torch.Tensor, first: int) -> torch.Tensor:
    """Return `row_lookup` of the ids that lie in this slice, zeros for the others."""
    local = ids - first
    foreign = (local < 0) | (local >= table.shape[1])
    rows = row_lookup(local.masked_fill(foreign, 0), table, 0)
    return rows.masked_fill_(foreign.unsqueeze(1), 0.0)
