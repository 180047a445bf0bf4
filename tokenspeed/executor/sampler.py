"""Chooses the next id of each sampled row.

Owns the split of a batch into greedy rows, which take the largest logit and pay for nothing else,
rows that draw, and rows whose logits are changed first; and what is reported beside the ids. How all
that is computed is the kernels' business (`tokenspeed_kernels.sampling`); the settings lie in the
slots.

Invariant: an id depends on the row's logits, settings, seed, position and the ids before it alone.
"""

from __future__ import annotations

from typing import NamedTuple, Self

import numpy as np
import torch
from tokenspeed_kernels import Selector, sampling
from tokenspeed_kernels.sampling import GREEDY_BELOW, AdjustKernel, DrawKernel, DrawRows, LogprobsKernel

from tokenspeed.executor.asks import packed
from tokenspeed.executor.pools import Ints, SlotPool
from tokenspeed.messages.scheduler import ROW_FAILED


class SampleKernels(NamedTuple):
    """What a choice is made of."""

    draw: DrawKernel
    adjust: AdjustKernel
    logprobs: LogprobsKernel

    @classmethod
    def choose(cls, kernels: Selector) -> Self:
        """Pick each."""
        return cls(sampling.draw(kernels), sampling.adjust(kernels), sampling.logprobs(kernels))


class Sampled(NamedTuple):
    """The ids of the rows that have one, int64; counts per row, int64 [rows]; entries of `ids` that ask for them."""

    counts: Ints
    ids: Ints
    logprobs: bytes


def sample(logits: torch.Tensor, slots: Ints, positions: Ints, pool: SlotPool, kernels: SampleKernels) -> Sampled:
    """Choose an id for each row of `logits` float32 [rows, vocab], which are given up, and remember it.

    `positions` are those of the tokens that are drawn. A row fails whose logits are not finite, or
    whose settings leave no id.
    """
    good = logits.sum(dim=1).isfinite().numpy()
    tops = pool.asks.logprobs[slots]
    asking = np.flatnonzero(good & (tops >= 0))
    raw = logits[asking]  # a copy: the others are changed now
    changed = _change(logits, slots, positions, pool, kernels)
    good[changed] &= logits[changed].amax(dim=1).isfinite().numpy()
    logits[torch.from_numpy(~good)] = 0.0  # whatever is chosen there is dropped
    ids = _choose(logits, slots, positions, pool, kernels.draw)
    pool.remember(slots, positions, np.where(good, ids, 0))
    told = asking[good[asking]]
    found = entries(raw[torch.from_numpy(good[asking])], ids[told], tops[told], kernels.logprobs)
    return Sampled(np.where(good, 1, ROW_FAILED), ids[good], found)


def entries(logits: torch.Tensor, ids: Ints, tops: Ints, kernel: LogprobsKernel) -> bytes:
    """Return the packed entries of `ids` [rows]; `tops[row]`, not below 0, says how many likeliest ids come along."""
    if not len(ids):
        return b""
    rows = torch.arange(len(ids), dtype=torch.int32)
    found = kernel(logits, torch.from_numpy(ids).int(), rows, torch.from_numpy(tops).int())
    return packed(found.numpy(), tops)


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


def _change(logits: torch.Tensor, slots: Ints, positions: Ints, pool: SlotPool, kernels: SampleKernels) -> Ints:
    """Change `logits` as their slots' settings say; return the rows that were changed."""
    edited = pool.edited[slots] != 0
    early = positions < pool.suppress_until[slots]
    if edited.any():
        rows = np.flatnonzero(edited)
        places, at = (torch.from_numpy(column[rows]).int() for column in (slots, positions))
        logits[rows] = kernels.adjust(logits[rows], torch.from_numpy(pool.edited), pool.edits, places, at)
    for row in np.flatnonzero(early):
        logits[row, pool.suppress[slots[row]]] = float("-inf")
    return np.flatnonzero(edited | early)
