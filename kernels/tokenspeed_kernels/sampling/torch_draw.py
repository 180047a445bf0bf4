"""Gumbel-max sampling in torch, whole batches at a time.

Rows without a cut take noise for every token. Rows with one look at the few likeliest tokens
first: nearly always the cut lies there, and a sort of the vocabulary is spared. Those that need
more look wider (`WIDTHS`), at last at everything. Every width gives the same ids.

Ranking key: the float32's bits mapped to an integer of the same order, then the complement of the
id, so that keys are unique and equal logits rank by id.
"""

from __future__ import annotations

import torch

from tokenspeed_kernels.sampling import DrawRows
from tokenspeed_kernels.sampling.philox import gumbel_all, gumbel_of

WIDTHS = (256, 4096)
ID_MASK = 0xFFFFFFFF


def draw(logits: torch.Tensor, rows: DrawRows) -> torch.Tensor:
    """Return int64 ids [rows]; see `DrawKernel`."""
    scaled = logits / rows.temperature.unsqueeze(1)
    cut = (rows.top_k > 0) | (rows.top_p < 1.0) | (rows.min_p > 0.0)
    if not bool(cut.any()):
        return _draw_all(scaled, rows)
    ids = torch.empty(len(scaled), dtype=torch.int64)
    for chosen, drawer in ((~cut, _draw_all), (cut, _draw_cut)):
        index = chosen.nonzero().squeeze(1)
        if len(index):
            ids[index] = drawer(scaled[index], _take(rows, index))
    return ids


def _draw_all(scaled: torch.Tensor, rows: DrawRows) -> torch.Tensor:
    return (scaled + gumbel_all(rows.seed, rows.position, scaled.shape[1])).argmax(dim=1)


def _draw_cut(scaled: torch.Tensor, rows: DrawRows) -> torch.Tensor:
    vocab = scaled.shape[1]
    keys = ranking_keys(scaled)
    total = torch.logsumexp(scaled.double(), dim=1, keepdim=True)
    ids = torch.empty(len(scaled), dtype=torch.int64)
    left = torch.arange(len(scaled))
    for width in (*(width for width in WIDTHS if width < vocab), vocab):
        ranked = torch.topk(keys[left], width, dim=1).values
        ids[left], beyond = _draw_ranked(scaled[left], ranked, total[left], _take(rows, left))
        left = left[beyond]
        if not len(left):
            break
    return ids


def _draw_ranked(
    scaled: torch.Tensor, ranked: torch.Tensor, total: torch.Tensor, rows: DrawRows
) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw among the tokens of the keys `ranked` [rows, n], the n likeliest, best first.

    Returns (ids, whether the cut may lie beyond the n tokens, so that the row's id is void).
    """
    tokens = ID_MASK - (ranked & ID_MASK)
    logits = scaled.gather(1, tokens)
    kept, beyond = _kept(logits, total, rows)
    noisy = (logits + _noise(rows, tokens, scaled.shape[1])).masked_fill(
        torch.arange(tokens.shape[1]) >= kept.unsqueeze(1), float("-inf")
    )
    # Ranked order is not id order: of equal sums the lower id is wanted.
    best = noisy == noisy.amax(dim=1, keepdim=True)
    return tokens.masked_fill(~best, ID_MASK).amin(dim=1), beyond


def _noise(rows: DrawRows, tokens: torch.Tensor, vocab: int) -> torch.Tensor:
    """Return the noise of `tokens`; four neighbours share one Philox call, so many are cheaper all at once."""
    if tokens.shape[1] * 4 < vocab:
        return gumbel_of(rows.seed, rows.position, tokens)
    return gumbel_all(rows.seed, rows.position, vocab).gather(1, tokens)


def _kept(logits: torch.Tensor, total: torch.Tensor, rows: DrawRows) -> tuple[torch.Tensor, torch.Tensor]:
    """Return how many of the ranked `logits` [rows, n] stay (int64 [rows], at least 1).

    Also returns where n is too few to tell. `total` is the log of the sum over the whole vocabulary.
    """
    count = logits.shape[1]
    wide = logits.double()
    share = (wide - total).exp().cumsum(dim=1)
    top_k = torch.where(rows.top_k > 0, rows.top_k, torch.iinfo(torch.int64).max)
    last = (top_k.clamp(max=count) - 1).unsqueeze(1)
    whole = torch.where(top_k <= count, share.gather(1, last).squeeze(1), 1.0)
    by_p = torch.where(rows.top_p < 1.0, (share < (rows.top_p * whole).unsqueeze(1)).sum(dim=1) + 1, top_k)
    floor = wide[:, :1] + rows.min_p.log().unsqueeze(1)
    by_min = torch.where(rows.min_p > 0.0, (wide >= floor).sum(dim=1), top_k)
    kept = torch.minimum(torch.minimum(top_k, by_p), by_min)
    # top_p's share is of what top_k left: with a top_k beyond n that is not known.
    unknown = (rows.top_p < 1.0) & (rows.top_k > count)
    return kept.clamp(1, count), (kept > count) | unknown | ((by_min == count) & (kept == count))


def ranking_keys(scaled: torch.Tensor) -> torch.Tensor:
    # -0.0 and 0.0 are equal: adding 0.0 makes their bits equal too.
    bits = (scaled + 0.0).view(torch.int32).long()
    ordered = torch.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
    ids = torch.arange(scaled.shape[1])
    return (ordered << 32) | (ID_MASK - ids)


def _take(rows: DrawRows, index: torch.Tensor) -> DrawRows:
    return DrawRows(
        rows.temperature[index],
        rows.top_k[index],
        rows.top_p[index],
        rows.min_p[index],
        rows.seed[index],
        rows.position[index],
    )
