"""`sampling.logprobs` in two launches: all logits once, then one program a row.

`tally` reduces splits of a row to the largest logit of each block of 128 tokens and the split's share
of the softmax. `report` merges them in a fixed order. The k likeliest ids lie in the k blocks with
the largest logits (equal ones: the lower block), and ids above the given one in blocks whose largest
is above it, so it reads little more than that. Rows that ask for nothing end with one load.

Invariant: the split is a constant, so a row's numbers do not depend on the batch.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from tokenspeed_kernels.aot import Launch
from tokenspeed_kernels.sampling import ENTRY_WORDS, LOGPROBS_MAX
from tokenspeed_kernels.sampling.triton_noise import (
    BLOCK,
    BLOCK_TOKENS,
    NEVER,
    NOWHERE,
    ranking_key,
    tokens_of,
    value_of,
)
from tokenspeed_kernels.sampling.triton_scan import SCAN_WARPS, SPLIT_BLOCKS, SPLIT_TOKENS

REPORT_WARPS = 16
_BEST = tl.constexpr(triton.next_power_of_2(LOGPROBS_MAX))
_WORDS = tl.constexpr(ENTRY_WORDS)
_VIEW = tl.constexpr(32)
"""Blocks that are read at once."""
_INDEX = tl.constexpr(0xFFFFFFFF)
"""The bits of a rank that hold the complement of what is ranked."""
_LAST = tl.constexpr(-(2**63))
"""A rank behind every other."""


def logprobs(logits: torch.Tensor, ids: torch.Tensor, slots: torch.Tensor, top: torch.Tensor) -> torch.Tensor:
    """Return int32 [rows, ENTRY_WORDS]; see `LogprobsKernel`."""
    rows, vocab = logits.shape
    blocks, splits = triton.cdiv(vocab, BLOCK_TOKENS), triton.cdiv(vocab, SPLIT_TOKENS)
    highs = logits.new_empty((rows, splits))
    masses = logits.new_empty((rows, splits), dtype=torch.float64)
    maxima = logits.new_empty((rows, blocks))
    view = slots.new_empty((rows, blocks))
    entries = slots.new_empty((rows, ENTRY_WORDS))
    tally[(splits, rows)](
        logits,
        logits.stride(0),
        vocab,
        blocks,
        splits,
        slots,
        top,
        highs,
        masses,
        maxima,
        SPLIT_BLOCKS=SPLIT_BLOCKS,
        num_warps=SCAN_WARPS,
    )
    report[(rows,)](
        logits,
        logits.stride(0),
        vocab,
        blocks,
        splits,
        ids,
        slots,
        top,
        highs,
        masses,
        maxima,
        view,
        entries,
        entries.view(torch.float32),
        SPLITS=triton.next_power_of_2(splits),
        BLOCKS=triton.next_power_of_2(blocks),
        num_warps=REPORT_WARPS,
    )
    return entries


@triton.jit(do_not_specialize_on_alignment=["slots", "highs", "masses"])
def tally(
    logits: tl.tensor,
    logits_stride: int,
    vocab: int,
    blocks: int,
    splits: int,
    slots: tl.tensor,
    top: tl.tensor,
    highs: tl.tensor,
    masses: tl.tensor,
    maxima: tl.tensor,
    SPLIT_BLOCKS: tl.constexpr,
) -> None:
    """Grid (splits, rows). Writes maxima [rows, blocks], and highs and masses [rows, splits].

    The latter are the split's largest logit and the sum of exp(logit - that).
    """
    split = tl.program_id(0)
    row = tl.program_id(1)
    if tl.load(top + tl.load(slots + row)) >= 0:
        block = split * SPLIT_BLOCKS + tl.arange(0, SPLIT_BLOCKS)
        tokens = tokens_of(block)
        x = tl.load(logits + row.to(tl.int64) * logits_stride + tokens, mask=tokens < vocab, other=NEVER)
        peaks = tl.max(x, 1)
        high = tl.max(peaks)
        tl.store(maxima + row * blocks + block, peaks, mask=block < blocks)
        tl.store(highs + row * splits + split, high)
        tl.store(masses + row * splits + split, tl.sum(tl.exp(x - high)).to(tl.float64))


@triton.jit(do_not_specialize_on_alignment=["ids", "slots", "highs", "masses"])
def report(
    logits: tl.tensor,
    logits_stride: int,
    vocab: int,
    blocks: int,
    splits: int,
    ids: tl.tensor,
    slots: tl.tensor,
    top: tl.tensor,
    highs: tl.tensor,
    masses: tl.tensor,
    maxima: tl.tensor,
    view: tl.tensor,
    entries: tl.tensor,
    numbers: tl.tensor,
    SPLITS: tl.constexpr,
    BLOCKS: tl.constexpr,
) -> None:
    """Grid (rows). Writes the row's entry; `entries` and `numbers` are one tensor in two types."""
    row = tl.program_id(0)
    wanted = tl.load(top + tl.load(slots + row))
    token = tl.load(ids + row)
    if (wanted >= 0) & (token >= 0):
        own = logits + row.to(tl.int64) * logits_stride
        split = tl.arange(0, SPLITS)
        live = split < splits
        peaks = tl.load(highs + row * splits + split, mask=live, other=NEVER)
        shares = tl.load(masses + row * splits + split, mask=live, other=0.0)
        high = tl.max(peaks)
        # The log of the sum of exp(logit), in float64 as the differences to it.
        total = tl.log(tl.sum(shares * tl.exp(peaks - high).to(tl.float64))) + high.to(tl.float64)
        block = tl.arange(0, BLOCKS)
        highest = tl.load(maxima + row * blocks + block, mask=block < blocks, other=NEVER)
        x = tl.load(own + token)
        entry = entries + row * _WORDS
        tl.store(entry, token)
        tl.store(entry + 1, 1 + _greater(own, vocab, x, highest, view + row * blocks))
        tl.store(numbers + row * _WORDS + 2, (x.to(tl.float64) - total).to(tl.float32))
        if wanted > 0:
            held = tl.where(block < blocks, _rank(highest, block), _LAST)
            _likeliest(own, vocab, held, wanted, total, entry + 3, numbers + row * _WORDS + 3)


@triton.jit
def _greater(own: tl.tensor, vocab: tl.tensor, x: tl.tensor, highest: tl.tensor, view: tl.tensor) -> tl.tensor:
    """Return how many logits are greater than `x`; they lie in blocks whose `highest` is."""
    chosen = highest > x
    place = tl.cumsum(chosen.to(tl.int32), 0) - 1
    tl.store(view + place, tl.arange(0, highest.shape[0]), mask=chosen)
    # Other threads read what this one has written.
    tl.debug_barrier()
    number = tl.zeros((_VIEW, BLOCK), tl.int32)
    seen = tl.sum(chosen.to(tl.int32))
    for start in range(0, seen, _VIEW):
        index = start + tl.arange(0, _VIEW)
        tokens = tokens_of(tl.load(view + index, mask=index < seen, other=NOWHERE))
        number += (tl.load(own + tokens, mask=tokens < vocab, other=NEVER) > x).to(tl.int32)
    return tl.sum(number)


@triton.jit
def _likeliest(
    own: tl.tensor,
    vocab: tl.tensor,
    held: tl.tensor,
    wanted: tl.tensor,
    total: tl.tensor,
    ids: tl.tensor,
    numbers: tl.tensor,
) -> None:
    """Write the `wanted` likeliest ids, and their log-probabilities behind them; `held` ranks the blocks."""
    place = tl.arange(0, _BEST)
    chosen = tl.full([_BEST], NOWHERE, tl.int32)
    for index in range(wanted):
        best = tl.max(held)
        chosen = tl.where((place == index) & (best != _LAST), (~best & _INDEX).to(tl.int32), chosen)
        held = tl.where(held == best, _LAST, held)
    tokens = tokens_of(chosen)
    inside = tokens < vocab
    ranks = tl.where(inside, _rank(tl.load(own + tokens, mask=inside, other=NEVER), tokens), _LAST)
    for index in range(wanted):
        best = tl.max(ranks)
        tl.store(ids + index, (~best & _INDEX).to(tl.int32))
        x = value_of((best >> 32).to(tl.int32)).to(tl.float64)
        tl.store(numbers + wanted + index, (x - total).to(tl.float32))
        ranks = tl.where(ranks == best, _LAST, ranks)


@triton.jit
def _rank(x: tl.tensor, index: tl.tensor) -> tl.tensor:
    """Return int64 keys: the larger number first, of equal ones the lower index."""
    return (ranking_key(x).to(tl.int64) << 32) | (~index.to(tl.int64) & _INDEX)


_LOGITS = "*fp32 i32:16 i32:16 i32 i32"
_SCRATCH = "*fp32 *fp64 *fp32"

AOT = (
    Launch(tally, f"{_LOGITS} *i32 *i32 {_SCRATCH}", {"SPLIT_BLOCKS": SPLIT_BLOCKS}, warps=SCAN_WARPS),
    *(
        Launch(
            report,
            f"{_LOGITS} *i32 *i32 *i32 {_SCRATCH} *i32 *i32 *fp32",
            {
                "SPLITS": triton.next_power_of_2(triton.cdiv(vocab, SPLIT_TOKENS)),
                "BLOCKS": triton.next_power_of_2(triton.cdiv(vocab, BLOCK_TOKENS)),
            },
            warps=REPORT_WARPS,
        )
        for vocab in (49152, 128256, 262144)
    ),
)
