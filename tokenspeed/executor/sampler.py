"""Chooses the next id of each sampled row.

Owns the split of a batch into greedy rows, which take the largest logit and pay for nothing else,
and rows that draw. How an id is drawn is the kernel's business (`tokenspeed_kernels.sampling`); the
settings lie in the slots.

Invariant: an id depends on the row's logits, settings, seed and position alone.
"""

from __future__ import annotations

import numpy as np
import torch
from tokenspeed_kernels.sampling import GREEDY_BELOW, DrawKernel, DrawRows

from tokenspeed.errors import EngineError
from tokenspeed.executor.pools import Ints, SlotPool


def sample(logits: torch.Tensor, slots: Ints, positions: Ints, pool: SlotPool, draw: DrawKernel) -> torch.Tensor:
    """Return int64 ids [rows] for `logits` [rows, vocab], which are given up.

    `positions` are those of the tokens that are drawn. Raises `EngineError` for logits that are not
    finite.
    """
    _check_finite(logits, slots)
    _suppress(logits, slots, positions, pool)
    hot = np.flatnonzero(pool.temperature[slots] >= GREEDY_BELOW)
    if not len(hot):
        return logits.argmax(dim=1)
    if len(hot) == len(slots):
        return draw(logits, _settings(slots, positions, pool))
    ids = torch.empty(len(slots), dtype=torch.int64)
    cold = np.flatnonzero(pool.temperature[slots] < GREEDY_BELOW)
    ids[cold] = logits[cold].argmax(dim=1)
    ids[hot] = draw(logits[hot], _settings(slots[hot], positions[hot], pool))
    return ids


def _settings(slots: Ints, positions: Ints, pool: SlotPool) -> DrawRows:
    return DrawRows(
        temperature=torch.from_numpy(pool.temperature[slots]),
        top_k=torch.from_numpy(pool.top_k[slots]),
        top_p=torch.from_numpy(pool.top_p[slots]),
        min_p=torch.from_numpy(pool.min_p[slots]),
        seed=torch.from_numpy(pool.seed[slots]),
        position=torch.from_numpy(positions),
    )


def _suppress(logits: torch.Tensor, slots: Ints, positions: Ints, pool: SlotPool) -> None:
    for row in np.flatnonzero(positions < pool.suppress_until[slots]):
        logits[row, pool.suppress[slots[row]]] = float("-inf")


def _check_finite(logits: torch.Tensor, slots: Ints) -> None:
    finite = logits.sum(dim=1).isfinite()
    if not bool(finite.all()):
        bad = slots[~finite.numpy()].tolist()
        raise EngineError(f"The model's logits are not finite for slots {bad}; its weights or pages are damaged.")
