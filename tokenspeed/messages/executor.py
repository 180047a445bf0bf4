"""What an executor receives: the plan of one step.

A row is `ROW_INTS` int32: slot, tokens (query width), context (tokens in the cache before this
row's first), flags. The ids of rows without `ROW_DECODE` lie in `ids`, one row after the other; a
`ROW_DECODE` row reads its ids from its slot, where the step before wrote them. Of a `ROW_SCORE` row
every token is scored: the logits of position p score the id at p + 1, which is in the slot's history,
for each p + 1 below the slot's `prompt_tokens`. A page entry is `PAGE_INTS` int32: slot, group, index
in the slot's page table, page. Everything is applied in the order openings, pages, rows.
"""

from __future__ import annotations

import msgspec

from tokenspeed.messages.base import Message

ROW_INTS = 4
ROW_SLOT, ROW_TOKENS, ROW_CONTEXT, ROW_FLAGS = range(ROW_INTS)
ROW_SAMPLE = 1
ROW_DECODE = 2
ROW_SCORE = 4

PAGE_INTS = 4
PAGE_SLOT, PAGE_GROUP, PAGE_INDEX, PAGE_PAGE = range(PAGE_INTS)

# What one slot can hold.
SUPPRESS_MAX = 128
BIAS_MAX = 300
ALLOWED_MAX = 1024
BAD_WORDS_MAX = 128
BAD_WORD_IDS_MAX = 2048
LOGPROBS_MAX = 20


class SlotOpening(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Everything about a slot, written when a request takes it; the old content is gone.

    A position is the index, in the whole sequence, of the token that is drawn; ids of the reply are
    those at positions from `prompt_tokens` on. Arrays are int32 bytes unless said otherwise. The
    logits of a position are changed in this order:

    1. An id that occurs at any position before has its logit divided by `repetition_penalty` if it
       is positive, multiplied if not. Off at 1.
    2. An id that occurs n > 0 times in the reply so far loses n * `frequency_penalty` +
       `presence_penalty`. Off at 0 and 0.
    3. `bias_values[i]` (float32) is added to the logit of `bias_ids[i]`; no id comes twice.
    4. Unless `allowed` is empty, every id that is not in it becomes minus infinity.
    5. `bad_word_ids` are sequences one after the other, the i-th ending before `bad_word_ends[i]`.
       The last id of a sequence becomes minus infinity where the reply so far ends in all ids before
       it; that is always so for a sequence of one.
    6. No id in `suppress` is drawn for a position below `suppress_until`.

    Then come temperature, top_k, top_p and min_p. `history` are the known ids from position
    `history_first` on; each drawn id is written behind them by its step, if its position is one that a
    sequence can have (with max_tokens 0 the id after the longest prompt is drawn and dropped). It begins at 0 if
    `repetition_penalty` or `prompt_logprobs` needs the prompt, at `prompt_tokens` if only the other
    penalties or bad words of several ids need the reply, and is empty if nothing needs it.

    `logprobs` is -1, or how many of the likeliest ids a drawn id's log-probability brings along;
    `prompt_logprobs` the same for the scores of `ROW_SCORE` rows.
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
    prompt_tokens: int = 0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    bias_ids: bytes = b""
    bias_values: bytes = b""
    allowed: bytes = b""
    bad_word_ids: bytes = b""
    bad_word_ends: bytes = b""
    history_first: int = 0
    history: bytes = b""
    logprobs: int = -1
    prompt_logprobs: int = -1


class StepPlan(Message, frozen=True):
    """One forward pass."""

    step: int
    openings: list[SlotOpening]
    pages: bytes
    rows: bytes
    ids: bytes


ExecutorMessage = StepPlan
