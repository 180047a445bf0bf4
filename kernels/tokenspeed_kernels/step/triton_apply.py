"""`step.apply` in one launch of a fixed grid.

The programs share out tokens, openings and page entries among them; how many openings and entries
there are stands in the upload's header, so that one captured launch serves every step.

Invariant: no program reads what another one writes, so their order does not matter.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from tokenspeed_kernels.aot import Launch
from tokenspeed_kernels.sampling import SUPPRESS_MAX, SlotSettings
from tokenspeed_kernels.step import (
    HEADER_OPENINGS,
    HEADER_OPENINGS_AT,
    HEADER_PAGES,
    HEADER_PAGES_AT,
    OPENING_WORDS,
    PAGE_GROUP,
    PAGE_INDEX,
    PAGE_PAGE,
    PAGE_SLOT,
    PAGE_WORDS,
    opening_word,
)

PROGRAMS = 64
BLOCK_ITEMS = 128
APPLY_WARPS = 4


_SLOT = tl.constexpr(opening_word("slot"))
_TOP_K = tl.constexpr(opening_word("top_k"))
_UNTIL = tl.constexpr(opening_word("suppress_until"))
_COUNT = tl.constexpr(opening_word("suppress_count"))
_SEED = tl.constexpr(opening_word("seed"))
_TOP_P = tl.constexpr(opening_word("top_p"))
_MIN_P = tl.constexpr(opening_word("min_p"))
_TEMPERATURE = tl.constexpr(opening_word("temperature"))
_EDITS = tl.constexpr(opening_word("edits"))
_LOGPROBS = tl.constexpr(opening_word("logprobs"))
_PROMPT_LOGPROBS = tl.constexpr(opening_word("prompt_logprobs"))
_SUPPRESS = tl.constexpr(opening_word("suppress"))
_WORDS = tl.constexpr(OPENING_WORDS)

_OPENINGS = tl.constexpr(HEADER_OPENINGS)
_OPENINGS_AT = tl.constexpr(HEADER_OPENINGS_AT)
_PAGES = tl.constexpr(HEADER_PAGES)
_PAGES_AT = tl.constexpr(HEADER_PAGES_AT)
_PAGE_WORDS = tl.constexpr(PAGE_WORDS)
_PAGE_SLOT = tl.constexpr(PAGE_SLOT)
_PAGE_GROUP = tl.constexpr(PAGE_GROUP)
_PAGE_INDEX = tl.constexpr(PAGE_INDEX)
_PAGE_PAGE = tl.constexpr(PAGE_PAGE)
_BLOCK = tl.constexpr(BLOCK_ITEMS)


def apply(
    upload: torch.Tensor,
    ids: torch.Tensor,
    slots: torch.Tensor,
    settings: SlotSettings,
    page_table: torch.Tensor,
    last_id: torch.Tensor,
) -> None:
    """See `ApplyKernel`."""
    apply_upload[(PROGRAMS,)](
        upload,
        upload.view(torch.int64),
        upload.view(torch.float64),
        upload.view(torch.float32),
        ids,
        slots,
        ids.numel(),
        settings.temperature,
        settings.top_k,
        settings.top_p,
        settings.min_p,
        settings.seed,
        settings.suppress_until,
        settings.suppress_count,
        settings.suppress,
        settings.edits,
        settings.logprobs,
        settings.prompt_logprobs,
        page_table,
        page_table.stride(0),
        last_id,
        SUPPRESS_MAX=SUPPRESS_MAX,
        num_warps=APPLY_WARPS,
    )


# One binary for every number of tokens and every place of the sections.
@triton.jit(do_not_specialize=["tokens"], do_not_specialize_on_alignment=["ids", "slots"])
def apply_upload(
    words: tl.tensor,
    longs: tl.tensor,
    doubles: tl.tensor,
    floats: tl.tensor,
    ids: tl.tensor,
    slots: tl.tensor,
    tokens: int,
    temperature: tl.tensor,
    top_k: tl.tensor,
    top_p: tl.tensor,
    min_p: tl.tensor,
    seed: tl.tensor,
    suppress_until: tl.tensor,
    suppress_count: tl.tensor,
    suppress: tl.tensor,
    edits: tl.tensor,
    logprobs: tl.tensor,
    prompt_logprobs: tl.tensor,
    page_table: tl.tensor,
    page_table_stride: int,
    last_id: tl.tensor,
    SUPPRESS_MAX: tl.constexpr,
) -> None:
    """Grid of any size. `words`, `longs`, `doubles` and `floats` are one upload in four types."""
    _take_last_ids(ids, slots, tokens, last_id)
    _write_pages(words, page_table, page_table_stride)
    for index in range(tl.program_id(0), tl.load(words + _OPENINGS), tl.num_programs(0)):
        at = tl.load(words + _OPENINGS_AT) + index * _WORDS
        slot = tl.load(words + at + _SLOT)
        count = tl.load(words + at + _COUNT)
        tl.store(top_k + slot, tl.load(words + at + _TOP_K))
        tl.store(suppress_until + slot, tl.load(words + at + _UNTIL))
        tl.store(suppress_count + slot, count)
        tl.store(seed + slot, tl.load(longs + (at + _SEED) // 2))
        tl.store(top_p + slot, tl.load(doubles + (at + _TOP_P) // 2))
        tl.store(min_p + slot, tl.load(doubles + (at + _MIN_P) // 2))
        tl.store(temperature + slot, tl.load(floats + at + _TEMPERATURE))
        tl.store(edits + slot, tl.load(words + at + _EDITS))
        tl.store(logprobs + slot, tl.load(words + at + _LOGPROBS))
        tl.store(prompt_logprobs + slot, tl.load(words + at + _PROMPT_LOGPROBS))
        place = tl.arange(0, SUPPRESS_MAX)
        left_out = tl.load(words + at + _SUPPRESS + place, mask=place < count)
        tl.store(suppress + slot * SUPPRESS_MAX + place, left_out, mask=place < count)


@triton.jit
def _take_last_ids(ids: tl.tensor, slots: tl.tensor, tokens: int, last_id: tl.tensor) -> None:
    for start in range(tl.program_id(0) * _BLOCK, tokens, tl.num_programs(0) * _BLOCK):
        index = start + tl.arange(0, _BLOCK)
        inside = index < tokens
        # Ids are asked for beside their slots, not after them; a slot is read for every token.
        token = tl.load(ids + index, mask=inside, other=0)
        slot = tl.load(slots + index, mask=inside, other=0)
        left = inside & (token < 0)
        tl.store(ids + index, tl.load(last_id + slot, mask=left, other=0), mask=left)


@triton.jit
def _write_pages(words: tl.tensor, page_table: tl.tensor, page_table_stride: int) -> None:
    entries = tl.load(words + _PAGES)
    for start in range(tl.program_id(0) * _BLOCK, entries, tl.num_programs(0) * _BLOCK):
        index = start + tl.arange(0, _BLOCK)
        inside = index < entries
        entry = words + tl.load(words + _PAGES_AT) + index * _PAGE_WORDS
        slot = tl.load(entry + _PAGE_SLOT, mask=inside, other=0).to(tl.int64)
        place = tl.load(entry + _PAGE_INDEX, mask=inside, other=0)
        page = tl.load(entry + _PAGE_PAGE, mask=inside, other=0)
        mine = inside & (tl.load(entry + _PAGE_GROUP, mask=inside, other=-1) == 0)
        tl.store(page_table + slot * page_table_stride + place, page, mask=mine)


AOT = (
    Launch(
        apply_upload,
        "*i32 *i64 *fp64 *fp32 *i32 *i32 i32 *fp32 *i32 *fp64 *fp64 *i64 *i32 *i32 *i32 *i32 *i32 *i32 *i32 i32 *i32",
        {"SUPPRESS_MAX": SUPPRESS_MAX},
        warps=APPLY_WARPS,
    ),
)
