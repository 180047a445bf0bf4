"""Log-probabilities of ids, as a step reports them.

Owns the way from logits to the packed entries of `messages/logprobs.py`. It does not know which
rows ask, nor why an id was drawn.

Invariant: an entry depends on its row of logits, its id and the number of likeliest ids alone.
"""

from __future__ import annotations

import torch


def entries(logits: torch.Tensor, ids: torch.Tensor, top: int) -> bytes:
    """Return the packed entries of `ids` int64 [rows] under `logits` float32 [rows, vocab].

    Probabilities are softmax(logits); the rank is 1 + the number of logits that are strictly
    greater; the `top` likeliest ids come in order, equal ones by the lower id.
    """
    total = logits.logsumexp(dim=1, keepdim=True)
    chosen = logits.gather(1, ids[:, None])
    columns = [_bits(ids[:, None]), _bits((logits > chosen).sum(dim=1, keepdim=True) + 1), _bits(chosen - total)]
    if top:
        top_ids = likeliest(logits, top)
        columns += [_bits(top_ids), _bits(logits.gather(1, top_ids) - total)]
    return torch.cat(columns, dim=1).numpy().tobytes()


def likeliest(logits: torch.Tensor, count: int) -> torch.Tensor:
    """Return int64 ids [rows, count] of the largest of `logits` [rows, vocab], equal ones by the lower id.

    torch.topk may take any of equal ones: what it took is put in order, and where a tie lies across
    the end, all that are equal compete.
    """
    values, ids = logits.topk(count, dim=1)
    ids = ids.sort(dim=1).values
    order = logits.gather(1, ids).sort(dim=1, descending=True, stable=True).indices
    ids = ids.gather(1, order)
    for row in (logits >= values[:, -1:]).sum(dim=1).gt(count).nonzero()[:, 0].tolist():
        candidates = (logits[row] >= values[row, -1]).nonzero()[:, 0]
        best = logits[row, candidates].sort(descending=True, stable=True).indices[:count]
        ids[row] = candidates[best]
    return ids


def _bits(column: torch.Tensor) -> torch.Tensor:
    """Return int32 words: numbers as they are, floats by their bits."""
    return column.float().view(torch.int32) if column.is_floating_point() else column.int()
