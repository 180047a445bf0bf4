"""`sampling.adjust` in two launches: histories are counted, then rows are edited split by split.

Integers are added atomically: their order does not matter, so a row's bits are the same every time.
An edit program owns a split of a row. It writes the penalised logits, and changes single ones of
them behind a barrier; lists are read whole by every split, which takes what is its own. A row that
asks for nothing ends with one load.

Invariant: `counts` is zero between calls: who reads a count that is not puts it back to zero.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from tokenspeed_kernels.aot import Launch
from tokenspeed_kernels.sampling.edits import (
    ALLOWED_MAX,
    ALLOWS,
    BAD_WORDS_MAX,
    BANS,
    BIAS_MAX,
    BIASES,
    PENALISES,
    TABLE_WORDS,
    SlotEdits,
    table_word,
)

# Programs that share a row's history, and the ids that one takes at a time.
COUNT_PARTS = 32
COUNT_IDS = 1024
COUNT_WARPS = 4
SPLIT_TOKENS = 2048
ADJUST_WARPS = 4

_COUNT_IDS = tl.constexpr(COUNT_IDS)
_SPLIT = tl.constexpr(SPLIT_TOKENS)
_PROMPT = tl.constexpr(1 << 30)
"""The bit of a count that says: the prompt has it too."""
_NEVER = tl.constexpr(float("-inf"))

_PENALISES, _BIASES = tl.constexpr(PENALISES), tl.constexpr(BIASES)
_ALLOWS, _BANS = tl.constexpr(ALLOWS), tl.constexpr(BANS)
_WORDS = tl.constexpr(TABLE_WORDS)
_PROMPT_TOKENS = tl.constexpr(table_word("prompt_tokens"))
_REPETITION = tl.constexpr(table_word("repetition"))
_FREQUENCY = tl.constexpr(table_word("frequency"))
_PRESENCE = tl.constexpr(table_word("presence"))
_BIAS_COUNT = tl.constexpr(table_word("bias_count"))
_BIAS_IDS = tl.constexpr(table_word("bias_ids"))
_BIAS_VALUES = tl.constexpr(table_word("bias_values"))
_ALLOWED_COUNT = tl.constexpr(table_word("allowed_count"))
_ALLOWED = tl.constexpr(table_word("allowed"))
_BAD_WORDS = tl.constexpr(table_word("bad_words"))
_LONGEST = tl.constexpr(table_word("bad_word_longest"))
_ENDS = tl.constexpr(table_word("bad_word_ends"))
_BAD_IDS = tl.constexpr(table_word("bad_word_ids"))
_BIAS_PLACES = tl.constexpr(triton.next_power_of_2(BIAS_MAX))
_ALLOWED_PLACES = tl.constexpr(ALLOWED_MAX)
_WORD_PLACES = tl.constexpr(BAD_WORDS_MAX)


def adjust(
    logits: torch.Tensor, asked: torch.Tensor, edits: SlotEdits, slots: torch.Tensor, positions: torch.Tensor
) -> torch.Tensor:
    """Return the changed logits, float32 [rows, vocab]; see `AdjustKernel`."""
    rows, vocab = logits.shape
    assert rows <= len(edits.counts), f"{rows} rows, counts for {len(edits.counts)}"
    edited = logits.new_empty((rows, vocab))
    count[(COUNT_PARTS, rows)](
        asked,
        edits.table,
        edits.table.view(torch.float32),
        edits.history,
        edits.history.stride(0),
        edits.counts,
        vocab,
        slots,
        positions,
        num_warps=COUNT_WARPS,
    )
    edit[(triton.cdiv(vocab, SPLIT_TOKENS), rows)](
        logits,
        logits.stride(0),
        edited,
        vocab,
        asked,
        edits.table,
        edits.table.view(torch.float32),
        edits.history,
        edits.history.stride(0),
        edits.counts,
        slots,
        positions,
        num_warps=ADJUST_WARPS,
    )
    return edited


@triton.jit(do_not_specialize_on_alignment=["slots", "positions"])
def count(
    asked: tl.tensor,
    table: tl.tensor,
    numbers: tl.tensor,
    history: tl.tensor,
    history_stride: int,
    counts: tl.tensor,
    vocab: int,
    slots: tl.tensor,
    positions: tl.tensor,
) -> None:
    """Grid (parts, rows). Adds 1 for each id of a reply, sets `_PROMPT` for those of a prompt that matters."""
    row = tl.program_id(1)
    slot = tl.load(slots + row)
    if (tl.load(asked + slot) & _PENALISES) != 0:
        own = slot.to(tl.int64) * _WORDS
        position = tl.load(positions + row)
        prompt_tokens = tl.load(table + own + _PROMPT_TOKENS)
        first = tl.where(tl.load(numbers + own + _REPETITION) != 1.0, 0, prompt_tokens)
        past = history + slot.to(tl.int64) * history_stride
        target = counts + row.to(tl.int64) * vocab
        for start in range(first + tl.program_id(0) * _COUNT_IDS, position, tl.num_programs(0) * _COUNT_IDS):
            place = start + tl.arange(0, _COUNT_IDS)
            known = place < position
            token = tl.load(past + place, mask=known, other=0)
            replied = place >= prompt_tokens
            tl.atomic_add(target + token, 1, mask=known & replied, sem="relaxed")
            tl.atomic_or(target + token, _PROMPT, mask=known & (place < prompt_tokens), sem="relaxed")


@triton.jit(do_not_specialize_on_alignment=["slots", "positions"])
def edit(
    logits: tl.tensor,
    logits_stride: int,
    edited: tl.tensor,
    vocab: int,
    asked: tl.tensor,
    table: tl.tensor,
    numbers: tl.tensor,
    history: tl.tensor,
    history_stride: int,
    counts: tl.tensor,
    slots: tl.tensor,
    positions: tl.tensor,
) -> None:
    """Grid (splits, rows). Writes `edited` [rows, vocab] for rows that ask for something.

    `table` and `numbers` are one table in two types.
    """
    row = tl.program_id(1).to(tl.int64)
    slot = tl.load(slots + row).to(tl.int64)
    bits = tl.load(asked + slot)
    if bits == 0:
        return
    first = tl.program_id(0) * _SPLIT
    tokens = first + tl.arange(0, _SPLIT)
    inside = tokens < vocab
    table += slot * _WORDS
    numbers += slot * _WORDS
    target = edited + row * vocab
    x = tl.load(logits + row * logits_stride + tokens, mask=inside, other=0.0)
    if (bits & _PENALISES) != 0:
        x = _penalised(x, numbers, counts + row * vocab + tokens, inside)
    tl.store(target + tokens, x, mask=inside)
    # Other threads' stores are read and written over from here on.
    if (bits & _BIASES) != 0:
        tl.debug_barrier()
        place = tl.arange(0, _BIAS_PLACES)
        live = place < tl.load(table + _BIAS_COUNT)
        token = tl.load(table + _BIAS_IDS + place, mask=live, other=-1)
        live = (token >= first) & (token < first + _SPLIT)
        bias = tl.load(numbers + _BIAS_VALUES + place, mask=live, other=0.0)
        tl.store(target + token, tl.load(target + token, mask=live, other=0.0) + bias, mask=live)
    if (bits & _ALLOWS) != 0:
        tl.debug_barrier()
        place = tl.arange(0, _ALLOWED_PLACES)
        live = place < tl.load(table + _ALLOWED_COUNT)
        token = tl.load(table + _ALLOWED + place, mask=live, other=-1)
        live = (token >= first) & (token < first + _SPLIT)
        kept = tl.load(target + token, mask=live, other=0.0)
        tl.debug_barrier()
        tl.store(target + tokens, tl.full([_SPLIT], _NEVER, tl.float32), mask=inside)
        tl.debug_barrier()
        tl.store(target + token, kept, mask=live)
    if (bits & _BANS) != 0:
        past = history + slot * history_stride
        token = _banned(table, past, tl.load(positions + row))
        tl.debug_barrier()
        live = (token >= first) & (token < first + _SPLIT)
        tl.store(target + token, tl.full([_WORD_PLACES], _NEVER, tl.float32), mask=live)


@triton.jit
def _penalised(x: tl.tensor, numbers: tl.tensor, places: tl.tensor, inside: tl.tensor) -> tl.tensor:
    """Return `x` with its penalties, and clear the counts at `places`."""
    seen = tl.load(places, mask=inside, other=0)
    tl.store(places, tl.zeros_like(seen), mask=seen != 0)
    repetition = tl.load(numbers + _REPETITION)
    frequency = tl.load(numbers + _FREQUENCY).to(tl.float64)
    presence = tl.load(numbers + _PRESENCE).to(tl.float64)
    repeated = tl.where(x > 0.0, tl.div_rn(x, tl.zeros_like(x) + repetition), x * repetition)
    x = tl.where(seen != 0, repeated, x)
    replied = seen & (_PROMPT - 1)
    # In float64 nothing rounds but the result, fused or not.
    lowered = (x.to(tl.float64) - (replied.to(tl.float64) * frequency + presence)).to(tl.float32)
    return tl.where(replied != 0, lowered, x)


@triton.jit
def _banned(table: tl.tensor, past: tl.tensor, position: tl.tensor) -> tl.tensor:
    """Return the last ids of the bad words that would end at `position`, -1 for those that would not."""
    word = tl.arange(0, _WORD_PLACES)
    live = word < tl.load(table + _BAD_WORDS)
    end = tl.load(table + _ENDS + word, mask=live, other=0)
    length = end - tl.load(table + _ENDS + word - 1, mask=live & (word > 0), other=0)
    last = table + _BAD_IDS + end - 1
    replied = position - tl.load(table + _PROMPT_TOKENS)
    hit = live & (length - 1 <= replied)
    for back in range(1, tl.minimum(tl.load(table + _LONGEST), replied + 1)):
        compared = hit & (back < length)
        wanted = tl.load(last - back, mask=compared, other=0)
        hit = hit & ((wanted == tl.load(past + position - back)) | (back >= length))
    return tl.load(last, mask=hit, other=-1)


AOT = (
    Launch(count, "*i32 *i32 *fp32 *i32 i32:16 *i32 i32:16 *i32 *i32", warps=COUNT_WARPS),
    Launch(
        edit,
        "*fp32 i32:16 *fp32 i32:16 *i32 *i32 *fp32 *i32 i32:16 *i32 *i32 *i32",
        warps=ADJUST_WARPS,
    ),
)
