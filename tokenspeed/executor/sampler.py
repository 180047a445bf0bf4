"""Chooses the next id of each sampled row.

Owns the split of a batch into greedy rows, which take the largest logit and pay for nothing else,
and rows that draw; and what is reported beside the ids. How an id is drawn is the kernel's business
(`tokenspeed_kernels.sampling`); the settings lie in the slots.

Invariant: an id depends on the row's logits, settings, seed, position and the ids before it alone.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from tokenspeed_kernels.sampling import GREEDY_BELOW, DrawKernel, DrawRows

from tokenspeed.executor import logprobs
from tokenspeed.executor.adjust import MINUS_INFINITY, adjust
from tokenspeed.executor.pools import Ints, SlotPool
from tokenspeed.messages.scheduler import ROW_FAILED


class Sampled(NamedTuple):
    """The ids of the rows that have one, int64; counts per row, int64 [rows]; entries of `ids` that ask for them."""

    counts: Ints
    ids: Ints
    logprobs: bytes


def sample(logits: torch.Tensor, slots: Ints, positions: Ints, pool: SlotPool, draw: DrawKernel) -> Sampled:
    """Choose an id for each row of `logits` float32 [rows, vocab], which are given up, and remember it.

    `positions` are those of the tokens that are drawn. A row fails whose logits are not finite, or
    whose settings leave no id.
    """
    good = logits.sum(dim=1).isfinite().numpy()
    asking = np.flatnonzero(good & (pool.logprobs[slots] >= 0))
    raw = logits[asking] if len(asking) else logits[:0]  # a copy: the others are changed now
    changed = _adjust(logits, slots, positions, pool)
    good[changed] &= logits[changed].amax(dim=1).isfinite().numpy()
    logits[torch.from_numpy(~good)] = 0.0  # whatever is chosen there is dropped
    ids = _choose(logits, slots, positions, pool, draw)
    pool.remember(slots, positions, np.where(good, ids, 0))
    told = good[asking]
    found = entries(raw[torch.from_numpy(told)], ids[asking[told]], pool.logprobs[slots[asking[told]]])
    return Sampled(np.where(good, 1, ROW_FAILED), ids[good], found)


def entries(logits: torch.Tensor, ids: Ints, tops: Ints) -> bytes:
    """Return the packed entries of `ids` [rows]; `tops[row]` says how many likeliest ids come along."""
    ends = [*(np.flatnonzero(np.diff(tops)) + 1).tolist(), len(ids)]
    begins = [0, *ends[:-1]]
    return b"".join(
        logprobs.entries(logits[begin:end], torch.from_numpy(ids[begin:end]), int(tops[begin]))
        for begin, end in zip(begins, ends, strict=True)
        if begin < end
    )


def _choose(logits: torch.Tensor, slots: Ints, positions: Ints, pool: SlotPool, draw: DrawKernel) -> Ints:
    hot = pool.temperature[slots] >= GREEDY_BELOW
    if not hot.any():
        return logits.argmax(dim=1).numpy()
    if hot.all():
        return draw(logits, _settings(slots, positions, pool)).numpy()
    ids = np.empty(len(slots), np.int64)
    ids[~hot] = logits[torch.from_numpy(~hot)].argmax(dim=1).numpy()
    ids[hot] = draw(logits[torch.from_numpy(hot)], _settings(slots[hot], positions[hot], pool)).numpy()
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


def _adjust(logits: torch.Tensor, slots: Ints, positions: Ints, pool: SlotPool) -> Ints:
    """Change `logits` as their slots' settings say; return the rows that were changed."""
    early = positions < pool.suppress_until[slots]
    for row in np.flatnonzero(pool.adjusted[slots]):
        settings = pool.adjustments[slots[row]]
        assert settings is not None
        adjust(logits[row], settings, pool.history[slots[row], : positions[row]])
    for row in np.flatnonzero(early):
        logits[row, pool.suppress[slots[row]]] = MINUS_INFINITY
    return np.flatnonzero(pool.adjusted[slots] | early)
