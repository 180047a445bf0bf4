"""What an executor receives: the plan of one step.

A row is `ROW_INTS` int32: slot, tokens (query width), context (tokens in the cache before this
row's first), flags. The ids of rows without `ROW_DECODE` lie in `ids`, one row after the other; a
`ROW_DECODE` row reads its ids from its slot, where the step before wrote them. A page entry is
`PAGE_INTS` int32: slot, group, index in the slot's page table, page. Everything is applied in the
order openings, pages, rows.
"""

from __future__ import annotations

import msgspec

from tokenspeed.messages.base import Message

ROW_INTS = 4
ROW_SLOT, ROW_TOKENS, ROW_CONTEXT, ROW_FLAGS = range(ROW_INTS)
ROW_SAMPLE = 1
ROW_DECODE = 2

PAGE_INTS = 4
PAGE_SLOT, PAGE_GROUP, PAGE_INDEX, PAGE_PAGE = range(PAGE_INTS)


class SlotOpening(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Everything about a slot, written when a request takes it; the old content is gone.

    No id in `suppress` (int32 bytes) is drawn for a position below `suppress_until`. A position is
    the index, in the whole sequence, of the token that is drawn.
    """

    slot: int
    request: int
    seed: int
    temperature: float
    top_p: float
    top_k: int
    min_p: float
    suppress_until: int
    suppress: bytes


class StepPlan(Message, frozen=True):
    """One forward pass."""

    step: int
    openings: list[SlotOpening]
    pages: bytes
    rows: bytes
    ids: bytes


ExecutorMessage = StepPlan
