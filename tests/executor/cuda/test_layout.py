"""From a plan to the words of an upload: order, padding, samples."""

from __future__ import annotations

import numpy as np
import pytest
from tokenspeed_kernels import step

from tests.executor.test_batch import opening, plan_of
from tokenspeed.executor.asks import SlotAsks
from tokenspeed.executor.batch import Limits, Plan
from tokenspeed.executor.cuda.buffers import HostSections, Upload
from tokenspeed.executor.cuda.layout import StepShape, bucket_of, buckets, shape_of, tail_words_max, write_step
from tokenspeed.executor.pools import PageTables
from tokenspeed.messages import executor
from tokenspeed.messages.executor import ROW_DECODE, ROW_SAMPLE

LIMITS = Limits(slots=9, pages_total=40, pages_max=12, page_tokens=16, max_model_len=100, vocab=50)
SIZES = (1, 2, 4, 8)
BOTH = ROW_DECODE | ROW_SAMPLE


@pytest.fixture
def tables() -> PageTables:
    """Slots 1 to 4 hold 40 tokens each, slot s in pages 3 s, 3 s + 1 and 3 s + 2."""
    tables = PageTables(LIMITS.slots, LIMITS.max_model_len, LIMITS.page_tokens)
    entries = [[slot, 0, index, 3 * slot + index] for slot in (1, 2, 3, 4) for index in (0, 1, 2)]
    Plan(plan_of([opening(slot) for slot in (1, 2, 3, 4)], entries), tables, LIMITS).apply(tables)
    return tables


def _written(tables: PageTables, plan: Plan) -> tuple[StepShape, HostSections, int]:
    plan.apply(tables)
    shape = shape_of(plan, tables, SIZES, SlotAsks(LIMITS.slots), LIMITS.max_model_len)
    host = Upload(8 + 64, 8, tail_words_max(tables), "cpu").host[0]
    host.words.fill(77)
    return shape, host, write_step(plan, tables, shape, host)


@pytest.mark.parametrize(
    ("most", "sizes"),
    [
        (1, (1,)),
        (2, (1, 2)),
        (16, (1, 2, 4, 8, 16)),
        (20, (1, 2, 4, 8, 16, 20)),
        (128, (1, 2, 4, 8, 16, 32, 64, 96, 128)),
        (140, (1, 2, 4, 8, 16, 32, 64, 96, 128, 140)),
    ],
)
def test_buckets(most: int, sizes: tuple[int, ...]) -> None:
    assert buckets(most) == sizes
    assert [bucket_of(sizes, rows) for rows in (0, 1, most)] == [0, 1, most]


def test_decode_rows_are_padded_to_their_bucket(tables: PageTables) -> None:
    """Padding is slot 0, position 0, place 0; the graph's rows are the plan's, in order."""
    rows = [[3, 1, 40, BOTH], [1, 1, 17, BOTH], [2, 1, 5, ROW_SAMPLE]]
    shape, host, words = _written(tables, Plan(plan_of(rows=rows, ids=[9]), tables, LIMITS))
    assert (shape.plain, shape.singles, shape.bucket, shape.samples) == (True, 3, 4, 3)
    assert host.ids[:4].tolist() == [-1, -1, 9, 0]
    assert host.slots[:4].tolist() == [3, 1, 2, 0]
    assert host.positions[:4].tolist() == [40, 17, 5, 0]
    assert host.places[:4].tolist() == [11 * 16 + 8, 4 * 16 + 1, 6 * 16 + 5, 0]
    assert host.sample_positions[:4].tolist() == [41, 18, 6, 0]
    assert host.words[:4].tolist() == [0, host.words[1], 0, words]


def test_prompts_come_behind_the_padded_rows_of_one_token(tables: PageTables) -> None:
    """The device's order differs from the plan's; samples keep the plan's."""
    rows = [[1, 3, 10, ROW_SAMPLE], [2, 1, 40, BOTH], [3, 2, 0, 0], [4, 1, 20, BOTH], [5, 1, 0, 0]]
    plan = Plan(plan_of([opening(5)], [[5, 0, 0, 30]], rows, [1, 2, 3, 4, 5, 6]), tables, LIMITS)
    shape, host, words = _written(tables, plan)
    assert (shape.plain, shape.singles, shape.bucket, shape.samples, shape.tokens) == (False, 3, 4, 3, 9)
    assert host.ids[:9].tolist() == [-1, -1, 6, 0, 1, 2, 3, 4, 5]
    assert host.slots[:9].tolist() == [2, 4, 5, 0, 1, 1, 1, 3, 3]
    assert host.positions[:9].tolist() == [40, 20, 0, 0, 10, 11, 12, 0, 1]
    assert (shape.counts.tolist(), shape.contexts.tolist()) == ([3, 2], [10, 0])
    assert shape.table.tolist() == [[3], [9]]
    assert host.sample_tokens[:4].tolist() == [6, 0, 1, 0]
    assert host.sample_slots[:4].tolist() == [1, 2, 4, 0]
    assert host.sample_positions[:4].tolist() == [13, 41, 21, 0]
    assert host.words[words - 4 : words].tolist() == [5, 0, 0, 30]


def test_unsampled_rows_of_one_token_are_not_plain(tables: PageTables) -> None:
    """A graph samples all its rows."""
    shape, _, _ = _written(tables, Plan(plan_of(rows=[[1, 1, 40, ROW_DECODE]]), tables, LIMITS))
    assert (shape.plain, shape.bucket, shape.samples) == (False, 1, 0)


def test_a_plan_without_rows_sends_its_tail(tables: PageTables) -> None:
    """Openings alone are a plan too."""
    shape, host, words = _written(tables, Plan(plan_of([opening(7)], [[7, 0, 0, 33]]), tables, LIMITS))
    assert (shape.plain, shape.tokens, shape.samples) == (False, 0, 0)
    assert host.words[words - 4 : words].tolist() == [7, 0, 0, 33]
    assert np.all(host.words[words:] == 77)


def test_entries_lie_as_the_kernel_reads_them() -> None:
    """Kernels do not import the engine: the two sides name the same words."""
    for name in ("PAGE_SLOT", "PAGE_GROUP", "PAGE_INDEX", "PAGE_PAGE"):
        assert getattr(step, name) == getattr(executor, name)
    assert step.PAGE_WORDS == executor.PAGE_INTS
