"""From a plan to the tensors of one step.

Owns the reading and the checking of plans: everything in a plan is held against the pools before
anything is written. It does not know what a model computes or how an id is chosen.

Invariant: a plan that breaks a rule raises `EngineError` and leaves the pools as they were.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from tokenspeed_kernels.attention import AttentionRows

from tokenspeed.errors import EngineError
from tokenspeed.executor.pools import Ints, SlotPool
from tokenspeed.messages.executor import (
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
    ROW_SLOT,
    ROW_TOKENS,
    StepPlan,
)
from tokenspeed.model.layers import ForwardStep


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
class Batch:
    """One step: the model's input, and the rows to sample.

    `sample_tokens` are indices into the step's tokens, `sample_slots` the slots that get the ids,
    `sample_positions` the positions in their sequences of the tokens to be drawn; int64 [samples].
    """

    forward: ForwardStep
    sample_tokens: torch.Tensor
    sample_slots: Ints
    sample_positions: Ints


class Plan:
    """The arrays of a `StepPlan`, checked."""

    def __init__(self, plan: StepPlan, pool: SlotPool, limits: Limits) -> None:
        """Read `plan` and hold it against `limits` and the page tables of `pool`; writes nothing."""
        self._step = plan.step
        self._limits = limits
        self._openings = plan.openings
        pages = self._array(plan.pages, PAGE_INTS, "pages")
        rows = self._array(plan.rows, ROW_INTS, "rows")
        self._page_slots, self._page_indices, self._pages = (
            pages[:, PAGE_SLOT],
            pages[:, PAGE_INDEX],
            pages[:, PAGE_PAGE],
        )
        self.slots, self._tokens, self._context = rows[:, ROW_SLOT], rows[:, ROW_TOKENS], rows[:, ROW_CONTEXT]
        self._decode = (rows[:, ROW_FLAGS] & ROW_DECODE) != 0
        self._sample = (rows[:, ROW_FLAGS] & ROW_SAMPLE) != 0
        self._ids = self._array(plan.ids, 1, "ids")[:, 0]
        self._check_openings()
        self._check_pages(pages[:, PAGE_GROUP])
        self._check_rows()
        self._check_covered(pool)

    def apply(self, pool: SlotPool) -> None:
        """Write openings and page-table entries."""
        for opening in self._openings:
            pool.open(opening)
        pool.set_pages(self._page_slots, self._page_indices, self._pages)

    def expand(self, pool: SlotPool) -> Batch | None:
        """Return the step's tensors, None for a plan without rows; the plan has been applied."""
        if not len(self.slots):
            return None
        rows = np.repeat(np.arange(len(self.slots)), self._tokens)
        ends = self._tokens.cumsum()
        positions = np.arange(len(rows)) - (ends - self._tokens)[rows] + self._context[rows]
        ids = np.empty(len(rows), np.int64)
        from_slot = self._decode[rows]
        ids[from_slot] = pool.last_id[self.slots[rows[from_slot]]]
        ids[~from_slot] = self._ids
        page_tokens = self._limits.page_tokens
        table = pool.page_table[self.slots, : int(self._pages_needed().max())]
        places = table[rows, positions // page_tokens] * page_tokens + positions % page_tokens
        forward = ForwardStep(
            ids=torch.from_numpy(ids),
            positions=torch.from_numpy(positions),
            places=torch.from_numpy(places),
            rows=AttentionRows(
                torch.from_numpy(self._tokens), torch.from_numpy(self._context), torch.from_numpy(table)
            ),
        )
        sampled = self._sample.nonzero()[0]
        return Batch(
            forward,
            torch.from_numpy(ends[sampled] - 1),
            self.slots[sampled],
            (self._context + self._tokens)[sampled],
        )

    def _pages_needed(self) -> Ints:
        return -(-(self._context + self._tokens) // self._limits.page_tokens)

    def _check_openings(self) -> None:
        slots = [opening.slot for opening in self._openings]
        self._need("an opening's slot", np.array(slots, np.int64), 1, self._limits.slots)
        for opening in self._openings:
            if len(opening.suppress) % 4:
                raise self._error(f"the suppressed ids of slot {opening.slot} are {len(opening.suppress)} bytes")
            suppressed = np.frombuffer(bytes(opening.suppress), np.int32).astype(np.int64)
            self._need(f"a suppressed id of slot {opening.slot}", suppressed, 0, self._limits.vocab)

    def _check_pages(self, groups: Ints) -> None:
        self._need("a page's slot", self._page_slots, 1, self._limits.slots)
        self._need("a page's group", groups, 0, 1)
        self._need("a page's index", self._page_indices, 0, self._limits.pages_max)
        self._need("a page", self._pages, 1, self._limits.pages_total)

    def _check_rows(self) -> None:
        longest = self._limits.max_model_len
        self._need("a row's slot", self.slots, 1, self._limits.slots)
        self._need("a row's tokens", self._tokens, 1, longest + 1)
        self._need("a row's context", self._context, 0, longest + 1)
        self._need("a row's end", self._context + self._tokens, 1, longest + 1)
        self._need("the width of a row that reads its slot", self._tokens[self._decode], 1, 2)
        self._need("an id", self._ids, 0, self._limits.vocab)
        if len(np.unique(self.slots)) != len(self.slots):
            raise self._error(f"a slot has two rows: {sorted(self.slots.tolist())}")
        wanted = int(self._tokens[~self._decode].sum())
        if wanted != len(self._ids):
            raise self._error(f"its rows take {wanted} ids and it brings {len(self._ids)}")

    def _check_covered(self, pool: SlotPool) -> None:
        """Every row finds a page for each of its positions, as the tables will be."""
        if not len(self.slots):
            return
        needed = self._pages_needed()
        table = pool.page_table[self.slots, : int(needed.max())]
        row_of = np.full(self._limits.slots, -1, np.int64)
        row_of[self.slots] = np.arange(len(self.slots))
        opened = row_of[[opening.slot for opening in self._openings]] if self._openings else row_of[:0]
        table[opened[opened >= 0]] = 0
        rows = row_of[self._page_slots]
        inside = (rows >= 0) & (self._page_indices < table.shape[1])
        table[rows[inside], self._page_indices[inside]] = self._pages[inside]
        bare = (table == 0) & (np.arange(table.shape[1]) < needed[:, None])
        if bare.any():
            row, index = np.argwhere(bare)[0].tolist()
            raise self._error(f"slot {self.slots[row]} has no page at index {index} of the {needed[row]} it needs")

    def _array(self, data: bytes | memoryview, width: int, what: str) -> Ints:
        if len(data) % (4 * width):
            raise self._error(f"its {what} are {len(data)} bytes, no multiple of {4 * width}")
        return np.frombuffer(data, np.int32).astype(np.int64).reshape(-1, width)

    def _need(self, what: str, values: Ints, low: int, high: int) -> None:
        wrong = (values < low) | (values >= high)
        if wrong.any():
            raise self._error(f"{what} is {values[wrong][0]}; allowed are {low} to {high - 1}")

    def _error(self, what: str) -> EngineError:
        return EngineError(f"The plan of step {self._step} cannot be run: {what}.", code="bad_plan")
