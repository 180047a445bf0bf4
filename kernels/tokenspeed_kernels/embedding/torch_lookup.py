"""Table lookup in torch."""

from __future__ import annotations

import torch


def lookup(ids: torch.Tensor, table: torch.Tensor, first: int) -> torch.Tensor:
    """Return the rows `ids` of a whole `table`; `first` is 0."""
    return table.index_select(0, ids)


def lookup_slice(ids: torch.Tensor, table: torch.Tensor, first: int) -> torch.Tensor:
    """Return the rows of `ids` that lie in this slice, zeros for the others."""
    local = ids - first
    foreign = (local < 0) | (local >= table.shape[0])
    rows = table.index_select(0, local.masked_fill(foreign, 0))
    return rows.masked_fill_(foreign.unsqueeze(1), 0.0)
