"""The first pass of `sampling.choose`: every logit is read once.

A program reduces one split of one row to the best (noisy) logit and what the cuts will ask for: the
largest logit of each block of 128 tokens, and the split's share of the softmax. Greedy rows stop at
the best logit. What is chosen is not known here.

Invariant: the split is a constant, so a row's numbers do not depend on the batch.
"""

from __future__ import annotations

import triton
import triton.language as tl

from tokenspeed_kernels.sampling import GREEDY_BELOW
from tokenspeed_kernels.sampling.triton_noise import (
    BLOCK_TOKENS,
    FAR,
    NEVER,
    best_of,
    gumbel,
    suppressed,
    tokens_of,
)

SPLIT_BLOCKS = 16
SPLIT_TOKENS = SPLIT_BLOCKS * BLOCK_TOKENS
SCAN_WARPS = 4
GREEDY = tl.constexpr(GREEDY_BELOW)


# Alignment of what is read by the row would only make variants: batches cut it at any place.
@triton.jit(do_not_specialize_on_alignment=["slots", "positions", "best", "best_ids", "sums", "highs", "masses"])
def scan(
    logits: tl.tensor,
    logits_stride: int,
    vocab: int,
    blocks: int,
    splits: int,
    temperature: tl.tensor,
    top_p: tl.tensor,
    seed: tl.tensor,
    suppress_until: tl.tensor,
    suppress_count: tl.tensor,
    suppress: tl.tensor,
    slots: tl.tensor,
    positions: tl.tensor,
    best: tl.tensor,
    best_ids: tl.tensor,
    sums: tl.tensor,
    highs: tl.tensor,
    masses: tl.tensor,
    maxima: tl.tensor,
    edits: tl.tensor,
    edited: tl.tensor,
    SPLIT_BLOCKS: tl.constexpr,
    SUPPRESS_MAX: tl.constexpr,
    ADJUSTED: tl.constexpr,
) -> None:
    """Grid (splits, rows). Writes best, best_ids, sums [rows, splits] for all rows.

    The sums are those of `logits`; if ADJUSTED, rows of slots with `edits` choose by `edited` [rows, vocab].
    For rows that draw also maxima [rows, blocks], and if top_p is on highs and masses [rows, splits]:
    the split's largest scaled logit and the sum of exp(scaled - that).
    """
    split = tl.program_id(0)
    row = tl.program_id(1)
    block = split * SPLIT_BLOCKS + tl.arange(0, SPLIT_BLOCKS)
    tokens = tokens_of(block)
    inside = tokens < vocab
    # Asked for before the settings, which are two loads away.
    x = tl.load(logits + row.to(tl.int64) * logits_stride + tokens, mask=inside, other=0.0)
    slot = tl.load(slots + row)
    position = tl.load(positions + row)
    heat = tl.load(temperature + slot)
    at = row * splits + split
    tl.store(sums + at, tl.sum(x))
    if ADJUSTED:  # noqa: SIM102
        if tl.load(edits + slot) != 0:
            x = tl.load(edited + row.to(tl.int64) * vocab + tokens, mask=inside, other=0.0)
    x = tl.where(inside, x, NEVER)
    count = tl.where(position < tl.load(suppress_until + slot), tl.load(suppress_count + slot), 0)
    x = suppressed(x, tokens, suppress + slot * SUPPRESS_MAX, count)
    if heat >= GREEDY:
        x = tl.div_rn(x, heat)
        peaks = tl.max(x, 1)
        tl.store(maxima + row * blocks + block, peaks, mask=block < blocks)
        if tl.load(top_p + slot) < 1.0:
            high = tl.max(peaks)
            # A split may hold nothing but suppressed ids, or a number that voids the row.
            base = tl.where(tl.abs(high) < float("inf"), high, 0.0)
            mass = tl.sum(tl.exp(x - base).to(tl.float64))
            tl.store(highs + at, high)
            tl.store(masses + at, mass)
        x += gumbel(tl.load(seed + slot), position, block)
    value, token = best_of(x, tl.where(inside, tokens, FAR))
    tl.store(best + at, value)
    tl.store(best_ids + at, token)
