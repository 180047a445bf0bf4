"""From a checked plan to the words that go up.

Owns the order of a step's tokens on the device: rows of one token first, padded to a bucket, then
the rows of several. It does not know what computes them.

Invariant: sampled rows keep the plan's order, so that ids come down as they are reported.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from tokenspeed_kernels.step import pack_tail, tail_words

from tokenspeed.executor.asks import SlotAsks
from tokenspeed.executor.batch import Plan, Tokens
from tokenspeed.executor.cuda.buffers import HostSections, Words
from tokenspeed.executor.cuda.scores import Scored, scored
from tokenspeed.executor.pools import Ints, PageTables


@dataclass(frozen=True, slots=True)
class StepShape:
    """What a step is made of.

    `singles` rows of one token, `bucket` the tokens they take with padding; then the extend rows'
    `counts`, `contexts` [rows] and page `table` [rows, pages], int32. `samples` rows are sampled;
    the step is `full` if one of them asks for more than an id of its logits as they are. Tokens to
    score are `scored`. A step is `plain` if all its rows have one token, are sampled and score
    nothing: a graph has it.
    """

    singles: int
    bucket: int
    samples: int
    counts: Words
    contexts: Words
    table: Words
    full: bool = False
    scored: Scored | None = None

    @property
    def plain(self) -> bool:
        """Whether a decode graph computes this step."""
        return 0 < self.singles == self.samples and not len(self.counts) and self.scored is None

    @property
    def tokens(self) -> int:
        """Tokens with padding."""
        return self.bucket + int(self.counts.sum())


def buckets(rows_max: int) -> tuple[int, ...]:
    """Return the row counts that have a graph, smallest first; the last is `rows_max`."""
    small = [size for size in (1, 2, 4, 8, 16) if size < rows_max]
    return (*small, *range(32, rows_max, 32), rows_max)


def bucket_of(sizes: tuple[int, ...], rows: int) -> int:
    """Return the smallest bucket that takes `rows`, 0 for none."""
    return next(size for size in (0, *sizes) if size >= rows)


def tail_words_max(tables: PageTables) -> int:
    """Return the words of the largest tail: every slot opened, every page entry written."""
    return tail_words(tables.slots, tables.slots * tables.pages_max)


def shape_of(plan: Plan, tables: PageTables, sizes: tuple[int, ...], asks: SlotAsks, positions: int) -> StepShape:
    """Return the shape of `plan`, which has been applied to `tables` and `asks`; its rows fit the largest bucket.

    Sequences have at most `positions` ids.
    """
    wide = plan.tokens > 1
    singles, samples = int((~wide).sum()), int(plan.sample.sum())
    table = plan.table(tables, wide) if wide.any() else np.zeros((0, 0), np.int64)
    shape = StepShape(
        singles,
        bucket_of(sizes, singles),
        samples,
        plan.tokens[wide].astype(np.int32),
        plan.context[wide].astype(np.int32),
        table.astype(np.int32),
        bool(asks.full[plan.slots[plan.sample]].any()),
    )
    if not plan.score.any():
        return shape
    tokens = plan.expand(tables)
    order = np.arange(shape.tokens)[_device_order(plan, tokens, shape)]
    return replace(shape, scored=scored(plan, tokens, order, asks, positions))


def write_step(plan: Plan, tables: PageTables, shape: StepShape, host: HostSections) -> int:
    """Write everything of `plan` into `host` and return how many words to send."""
    if len(plan.slots):
        _write_tokens(plan, plan.expand(tables), shape, host)
        _write_samples(plan, shape, host)
    return pack_tail(host.words, host.tail_at, plan.openings, plan.entries.astype(np.int32))


def _write_tokens(plan: Plan, tokens: Tokens, shape: StepShape, host: HostSections) -> None:
    places = _device_order(plan, tokens, shape)
    for section, values in (
        (host.ids, tokens.ids),
        (host.slots, plan.slots[tokens.rows]),
        (host.positions, tokens.positions),
        (host.places, tokens.places),
    ):
        section[shape.singles : shape.bucket] = 0
        section[places] = values


def _device_order(plan: Plan, tokens: Tokens, shape: StepShape) -> Ints | slice:
    """Return where on the device each token of the plan's order lies."""
    if not len(shape.counts):
        return slice(0, shape.singles)
    single = (plan.tokens == 1)[tokens.rows]
    places = np.empty(len(tokens.rows), np.int64)
    places[single] = np.arange(shape.singles)
    places[~single] = np.arange(shape.bucket, shape.tokens)
    return places


def _write_samples(plan: Plan, shape: StepShape, host: HostSections) -> None:
    single = plan.tokens == 1
    ends = np.where(single, single.cumsum(), shape.bucket + np.where(single, 0, plan.tokens).cumsum())
    for section, values in (
        (host.sample_tokens, (ends - 1)[plan.sample]),
        (host.sample_slots, plan.slots[plan.sample]),
        (host.sample_positions, (plan.context + plan.tokens)[plan.sample]),
    ):
        section[: shape.samples] = values
        section[shape.samples :] = 0
