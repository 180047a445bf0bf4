"""`sampling.choose` in two launches: all logits once, then one program a row.

Owns the scratch between them. `triton_scan` reduces splits of a row, `settle` merges them, and hands
rows with a cut to `triton_cut`. Greedy rows and rows without cuts are done with the merge.

Invariant: grids depend on shapes alone, and everything else is decided on the device.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from tokenspeed_kernels.aot import Launch
from tokenspeed_kernels.sampling import SUPPRESS_MAX, Adjusted, SlotSettings
from tokenspeed_kernels.sampling.triton_cut import settle_cut
from tokenspeed_kernels.sampling.triton_noise import BLOCK_TOKENS, FAR, NEVER, best_of
from tokenspeed_kernels.sampling.triton_scan import GREEDY, SCAN_WARPS, SPLIT_BLOCKS, SPLIT_TOKENS, scan

SETTLE_WARPS = 16


def choose(
    logits: torch.Tensor,
    settings: SlotSettings,
    slots: torch.Tensor,
    positions: torch.Tensor,
    last_id: torch.Tensor,
    adjusted: Adjusted | None = None,
) -> torch.Tensor:
    """Return int32 ids [rows]; see `ChooseKernel`."""
    # Without `adjusted` nothing of what stands in for it is read.
    edited, history = (logits, last_id) if adjusted is None else (adjusted.logits, adjusted.history)
    rows, vocab = logits.shape
    blocks, splits = triton.cdiv(vocab, BLOCK_TOKENS), triton.cdiv(vocab, SPLIT_TOKENS)
    numbers = logits.new_empty((4, rows, splits))
    best, sums, highs, best_ids = numbers[0], numbers[1], numbers[2], numbers[3].view(torch.int32)
    masses = logits.new_empty((rows, splits), dtype=torch.float64)
    maxima = logits.new_empty((rows, blocks))
    view = slots.new_empty((rows, blocks))
    chosen = slots.new_empty(rows)
    scan[(splits, rows)](
        logits,
        logits.stride(0),
        vocab,
        blocks,
        splits,
        settings.temperature,
        settings.top_p,
        settings.seed,
        settings.suppress_until,
        settings.suppress_count,
        settings.suppress,
        slots,
        positions,
        best,
        best_ids,
        sums,
        highs,
        masses,
        maxima,
        settings.edits,
        edited,
        SPLIT_BLOCKS=SPLIT_BLOCKS,
        SUPPRESS_MAX=SUPPRESS_MAX,
        ADJUSTED=adjusted is not None,
        num_warps=SCAN_WARPS,
    )
    settle[(rows,)](
        logits,
        logits.stride(0),
        vocab,
        blocks,
        splits,
        settings.temperature,
        settings.top_k,
        settings.top_p,
        settings.min_p,
        settings.seed,
        settings.suppress_until,
        settings.suppress_count,
        settings.suppress,
        slots,
        positions,
        best,
        best_ids,
        sums,
        highs,
        masses,
        maxima,
        view,
        chosen,
        last_id,
        settings.edits,
        edited,
        history,
        history.stride(0),
        SPLITS=triton.next_power_of_2(splits),
        BLOCKS=triton.next_power_of_2(blocks),
        SUPPRESS_MAX=SUPPRESS_MAX,
        ADJUSTED=adjusted is not None,
        num_warps=SETTLE_WARPS,
    )
    return chosen


@triton.jit(do_not_specialize_on_alignment=["slots", "positions", "best", "best_ids", "sums", "highs", "masses"])
def settle(
    logits: tl.tensor,
    logits_stride: int,
    vocab: int,
    blocks: int,
    splits: int,
    temperature: tl.tensor,
    top_k: tl.tensor,
    top_p: tl.tensor,
    min_p: tl.tensor,
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
    view: tl.tensor,
    chosen: tl.tensor,
    last_id: tl.tensor,
    edits: tl.tensor,
    edited: tl.tensor,
    history: tl.tensor,
    history_stride: int,
    SPLITS: tl.constexpr,
    BLOCKS: tl.constexpr,
    SUPPRESS_MAX: tl.constexpr,
    ADJUSTED: tl.constexpr,
) -> None:
    """Grid (rows). Writes chosen [rows], and last_id at the row's slot; if ADJUSTED, also its history."""
    row = tl.program_id(0)
    index = tl.arange(0, SPLITS)
    live = index < splits
    at = row * splits + index
    values = tl.load(best + at, mask=live, other=NEVER)
    tokens = tl.load(best_ids + at, mask=live, other=FAR)
    total = tl.sum(tl.load(sums + at, mask=live, other=0.0))
    slot = tl.load(slots + row)
    heat = tl.load(temperature + slot)
    value, token = best_of(values, tokens)
    # False for NaN too.
    finite = tl.abs(total) < float("inf")
    # If nothing is left there is nothing to cut.
    if finite & (heat >= GREEDY) & (value > NEVER):
        k = tl.load(top_k + slot)
        p = tl.load(top_p + slot)
        m = tl.load(min_p + slot)
        if (k > 0) | (p < 1.0) | (m > 0.0):
            position = tl.load(positions + row)
            count = tl.where(position < tl.load(suppress_until + slot), tl.load(suppress_count + slot), 0)
            whole = tl.full((), 0.0, tl.float64)
            if p < 1.0:
                peaks = tl.load(highs + at, mask=live, other=NEVER)
                shares = tl.load(masses + at, mask=live, other=0.0)
                whole = tl.sum(shares * tl.exp(peaks - tl.max(peaks)).to(tl.float64))
            own = logits + row.to(tl.int64) * logits_stride
            if ADJUSTED:  # noqa: SIM102
                if tl.load(edits + slot) != 0:
                    own = edited + row.to(tl.int64) * vocab
            parts = (
                own,
                vocab,
                heat,
                suppress + slot * SUPPRESS_MAX,
                count,
                view + row * blocks,
            )
            drawn = tl.load(seed + slot)
            token = settle_cut(token, parts, k, p, m, drawn, position, maxima + row * blocks, blocks, whole, BLOCKS)
    # At minus infinity is what no setting left.
    token = tl.where(finite & (value > NEVER), token, -1)
    tl.store(chosen + row, token)
    # All padding rows share slot 0: one value, whichever of them writes last.
    known = tl.where(slot > 0, tl.maximum(token, 0), 0)
    tl.store(last_id + slot, known)
    if ADJUSTED:
        place = tl.load(positions + row)
        tl.store(history + slot.to(tl.int64) * history_stride + place, known, mask=place < history_stride)


_LOGITS = "*fp32 i32:16 i32:16 i32 i32"
_SETTINGS = "*i32 *i32 *i32 *i32 *i32"
_CHOSEN = "*i32 *i32 *i32"
_ADJUSTED = "*i32 *fp32 *i32"
_SCRATCH = "*fp32 *i32 *fp32 *fp32 *fp64 *fp32"
# Vocabularies, and whether slots may have edits.
_VARIANTS = ((49152, False), (128256, False), (128256, True), (262144, True))

AOT = (
    *(
        Launch(
            scan,
            f"{_LOGITS} *fp32 *fp64 *i64 {_SETTINGS} {_SCRATCH} *i32 *fp32",
            {"SPLIT_BLOCKS": SPLIT_BLOCKS, "SUPPRESS_MAX": SUPPRESS_MAX, "ADJUSTED": adjusted},
            warps=SCAN_WARPS,
        )
        for adjusted in (False, True)
    ),
    *(
        Launch(
            settle,
            f"{_LOGITS} *fp32 *i32 *fp64 *fp64 *i64 {_SETTINGS} {_SCRATCH} {_CHOSEN} {_ADJUSTED}"
            + " i32:16" * adjusted,
            {
                # `last_id` stands in for a history.
                **({} if adjusted else {"history_stride": 1}),
                "SPLITS": triton.next_power_of_2(triton.cdiv(vocab, SPLIT_TOKENS)),
                "BLOCKS": triton.next_power_of_2(triton.cdiv(vocab, BLOCK_TOKENS)),
                "SUPPRESS_MAX": SUPPRESS_MAX,
                "ADJUSTED": adjusted,
            },
            warps=SETTLE_WARPS,
        )
        for vocab, adjusted in _VARIANTS
    ),
)
