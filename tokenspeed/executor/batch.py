"""From a plan to the tensors of one step.

Owns the reading and the checking of plans: everything in a plan is held against the pools before
anything is written. It does not know what a model computes or how an id is chosen.

Invariant: a plan that breaks a rule raises `EngineError` and leaves the pools as they were.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import numpy as np
import torch
from tokenspeed_kernels.attention import AttentionRows

from tokenspeed.errors import EngineError
from tokenspeed.executor.pools import Ints, PageTables, SlotPool
from tokenspeed.messages.executor import (
    ALLOWED_MAX,
    BAD_WORD_IDS_MAX,
    BAD_WORDS_MAX,
    BIAS_MAX,
    LOGPROBS_MAX,
    PAGE_GROUP,
    PAGE_INDEX,
    PAGE_INTS,
    PAGE_PAGE,
    PAGE_SLOT,
    ROW_CONTEXT,
    ROW_DECODE,
    ROW_FLAGS,
    ROW_INTS,
    ROW_SAMPLE,
    ROW_SCORE,
    ROW_SLOT,
    ROW_TOKENS,
    SUPPRESS_MAX,
    SlotOpening,
    StepPlan,
)
from tokenspeed.model.layers import ForwardStep

FROM_SLOT = -1
# The fields of an opening that may be views of memory that changes.
BYTES = ("suppress", "bias_ids", "bias_values", "allowed", "bad_word_ids", "bad_word_ends", "history")

Bools = np.typing.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of what a plan may name; all are exclusive, except `max_model_len` for a row's end."""

    slots: int
    pages_total: int
    pages_max: int
    page_tokens: int
    max_model_len: int
    vocab: int


@dataclass(frozen=True, slots=True)
class Tokens:
    """A step's tokens, row after row: int64 [tokens]. An id is `FROM_SLOT` where the slot has it."""

    rows: Ints
    ids: Ints
    positions: Ints
    places: Ints


@dataclass(frozen=True, slots=True)
class Batch:
    """One step of the CPU executor: the model's input, the rows to sample and the tokens to score.

    The input's outputs are the last tokens of the rows to sample, then the tokens to score.
    `sample_slots` are the slots that get the ids, `sample_positions` the positions in their
    sequences of the tokens to be drawn; int64 [samples]. `score_ids` are the ids behind the tokens to
    score, `score_slots` their slots; int64 [scores].
    """

    forward: ForwardStep
    sample_slots: Ints
    sample_positions: Ints
    score_slots: Ints
    score_ids: Ints


class Plan:
    """The arrays of a `StepPlan`, checked. `slots`, `tokens`, `context`, `sample` and `score` are one per row."""

    def __init__(self, plan: StepPlan, tables: PageTables, limits: Limits) -> None:
        """Read `plan` and hold it against `limits` and the page tables; writes nothing."""
        self._step = plan.step
        self._limits = limits
        self.openings = plan.openings
        self.entries = self._array(plan.pages, PAGE_INTS, "pages")
        rows = self._array(plan.rows, ROW_INTS, "rows")
        self.slots, self.tokens, self.context = rows[:, ROW_SLOT], rows[:, ROW_TOKENS], rows[:, ROW_CONTEXT]
        self.sample = (rows[:, ROW_FLAGS] & ROW_SAMPLE) != 0
        self.score = (rows[:, ROW_FLAGS] & ROW_SCORE) != 0
        self._decode = (rows[:, ROW_FLAGS] & ROW_DECODE) != 0
        self._ids = self._array(plan.ids, 1, "ids")[:, 0]
        self._check_openings()
        self._check_entries()
        self._check_rows()
        self._check_covered(tables)

    def apply(self, tables: PageTables) -> None:
        """Write openings and page-table entries."""
        for opening in self.openings:
            tables.open(opening)
        tables.set_pages(self.entries[:, PAGE_SLOT], self.entries[:, PAGE_INDEX], self.entries[:, PAGE_PAGE])

    def expand(self, tables: PageTables) -> Tokens:
        """Return the step's tokens; the plan has been applied to `tables`."""
        rows = np.repeat(np.arange(len(self.slots)), self.tokens)
        firsts = self.tokens.cumsum() - self.tokens
        positions = np.arange(len(rows)) - (firsts - self.context)[rows]
        ids = np.full(len(rows), FROM_SLOT, np.int64)
        ids[~self._decode[rows]] = self._ids
        page_tokens = self._limits.page_tokens
        pages = tables.page_table[self.slots[rows], positions // page_tokens]
        return Tokens(rows, ids, positions, pages * page_tokens + positions % page_tokens)

    def table(self, tables: PageTables, rows: slice | Bools = slice(None)) -> Ints:
        """Return the page tables of `rows`, [rows, pages], as wide as the longest of them needs."""
        return tables.page_table[self.slots[rows], : int(self._pages_needed()[rows].max())]

    def _pages_needed(self) -> Ints:
        return -(-(self.context + self.tokens) // self._limits.page_tokens)

    def _check_openings(self) -> None:
        if not self.openings:
            return
        slots = [opening.slot for opening in self.openings]
        self._need("an opening's slot", np.array(slots, np.int64), 1, self._limits.slots)
        if len(set(slots)) != len(slots):
            raise self._error(f"a slot is opened twice: {sorted(slots)}")
        for opening in self.openings:
            self._check_settings(opening)

    def _check_settings(self, opening: SlotOpening) -> None:
        vocab, length, slot = self._limits.vocab, self._limits.max_model_len, opening.slot
        self._held(f"suppressed ids of slot {slot}", opening.suppress, SUPPRESS_MAX, vocab)
        biased = self._held(f"biased ids of slot {slot}", opening.bias_ids, BIAS_MAX, vocab)
        if len(opening.bias_values) != 4 * len(biased):
            raise self._error(f"slot {slot} has {len(biased)} biased ids and {len(opening.bias_values) // 4} values")
        self._held(f"allowed ids of slot {slot}", opening.allowed, ALLOWED_MAX, vocab)
        bad = self._held(f"ids in bad words of slot {slot}", opening.bad_word_ids, BAD_WORD_IDS_MAX, vocab)
        ends = self._held(f"ends of bad words of slot {slot}", opening.bad_word_ends, BAD_WORDS_MAX, len(bad) + 1)
        if (np.diff(ends, prepend=0) < 1).any() or ends[-1:].sum() != len(bad):
            raise self._error(f"the bad words of slot {slot} end at {ends.tolist()} and have {len(bad)} ids")
        self._need("an opening's history", np.array([opening.history_first]), 0, length + 1)
        self._held(f"ids in the history of slot {slot}", opening.history, length - opening.history_first, vocab)
        tops = np.array([opening.logprobs, opening.prompt_logprobs])
        self._need(f"a number of log-probabilities of slot {slot}", tops, -1, min(LOGPROBS_MAX, vocab) + 1)

    def _held(self, what: str, data: bytes, count_max: int, end: int) -> Ints:
        """Return int32 bytes, which are at most `count_max` numbers from 0 to `end`, exclusive."""
        numbers = self._array(data, 1, what)[:, 0]
        if len(numbers) > count_max:
            raise self._error(f"there are {len(numbers)} {what}; at most {count_max} are allowed")
        self._need(f"one of the {what}", numbers, 0, end)
        return numbers

    def _check_entries(self) -> None:
        if not len(self.entries):
            return
        self._need("a page's slot", self.entries[:, PAGE_SLOT], 1, self._limits.slots)
        self._need("a page's group", self.entries[:, PAGE_GROUP], 0, 1)
        self._need("a page's index", self.entries[:, PAGE_INDEX], 0, self._limits.pages_max)
        self._need("a page", self.entries[:, PAGE_PAGE], 1, self._limits.pages_total)

    def _check_rows(self) -> None:
        longest = self._limits.max_model_len
        self._need("a row's slot", self.slots, 1, self._limits.slots)
        self._need("a row's tokens", self.tokens, 1, longest + 1)
        self._need("a row's context", self.context, 0, longest + 1)
        self._need("a row's end", self.context + self.tokens, 1, longest + 1)
        self._need("the width of a row that reads its slot", self.tokens[self._decode], 1, 2)
        self._need("an id", self._ids, 0, self._limits.vocab)
        if len(np.unique(self.slots)) != len(self.slots):
            raise self._error(f"a slot has two rows: {sorted(self.slots.tolist())}")
        wanted = int(self.tokens[~self._decode].sum())
        if wanted != len(self._ids):
            raise self._error(f"its rows take {wanted} ids and it brings {len(self._ids)}")

    def _check_covered(self, tables: PageTables) -> None:
        """Every slot's table grows without a gap, no entry twice, and covers each position of its row."""
        covered = tables.covered
        if self.openings or len(self.entries):
            covered = covered.copy()
            covered[[opening.slot for opening in self.openings]] = 0
            places = self.entries[:, [PAGE_SLOT, PAGE_INDEX]].tolist()
            if len(set(map(tuple, places))) != len(places):
                raise self._error("a page-table entry is written twice")
            for slot, index in places:
                if index > covered[slot]:
                    raise self._error(f"slot {slot} gets a page at index {index} and has none at {covered[slot]}")
                covered[slot] = max(covered[slot], index + 1)
        needed = self._pages_needed()
        bare = covered[self.slots] < needed
        if bare.any():
            row = int(bare.argmax())
            slot = self.slots[row]
            raise self._error(f"slot {slot} has no page at index {covered[slot]} of the {needed[row]} it needs")

    def _array(self, data: bytes | memoryview, width: int, what: str) -> Ints:
        if len(data) % (4 * width):
            raise self._error(f"the {what} are {len(data)} bytes, no multiple of {4 * width}")
        return np.frombuffer(data, np.int32).astype(np.int64).reshape(-1, width)

    def _need(self, what: str, values: Ints, low: int, high: int) -> None:
        wrong = (values < low) | (values >= high)
        if wrong.any():
            raise self._error(f"{what} is {values[wrong][0]}; allowed are {low} to {high - 1}")

    def _error(self, what: str) -> EngineError:
        return EngineError(f"The plan of step {self._step} cannot be run: {what}.", code="bad_plan")


def owned(plan: StepPlan) -> StepPlan:
    """Return `plan` with bytes of its own in the place of views."""
    openings = [
        msgspec.structs.replace(opening, **{name: bytes(getattr(opening, name)) for name in BYTES})
        for opening in plan.openings
    ]
    return StepPlan(plan.step, openings, bytes(plan.pages), bytes(plan.rows), bytes(plan.ids))


def cpu_batch(plan: Plan, pool: SlotPool) -> Batch | None:
    """Return the tensors of `plan`, None if it has no rows; it has been applied to `pool`."""
    if not len(plan.slots):
        return None
    tokens = plan.expand(pool)
    sampled = plan.sample.nonzero()[0]
    scored = plan.score[tokens.rows] & (tokens.positions + 1 < pool.asks.prompt_tokens[plan.slots[tokens.rows]])
    score_slots = plan.slots[tokens.rows[scored]]
    ids = np.where(tokens.ids == FROM_SLOT, pool.last_id[plan.slots[tokens.rows]], tokens.ids)
    forward = ForwardStep(
        ids=torch.from_numpy(ids),
        positions=torch.from_numpy(tokens.positions),
        places=torch.from_numpy(tokens.places),
        rows=AttentionRows(
            torch.from_numpy(plan.tokens), torch.from_numpy(plan.context), torch.from_numpy(plan.table(pool))
        ),
        outputs=torch.from_numpy(np.concatenate([plan.tokens.cumsum()[sampled] - 1, scored.nonzero()[0]])),
    )
    return Batch(
        forward,
        plan.slots[sampled],
        (plan.context + plan.tokens)[sampled],
        score_slots,
        pool.history[score_slots, tokens.positions[scored] + 1].astype(np.int64),
    )
