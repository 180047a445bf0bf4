"""Bad plans are refused and leave no trace; good ones become the right tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tokenspeed_kernels import sampling
from tokenspeed_kernels.attention import AttentionRows
from tokenspeed_kernels.sampling import edits

from tokenspeed.errors import EngineError
from tokenspeed.executor.batch import Limits, Plan, cpu_batch
from tokenspeed.executor.pools import SlotPool
from tokenspeed.messages import executor
from tokenspeed.messages.base import pack_ids
from tokenspeed.messages.executor import ROW_DECODE, ROW_SAMPLE, ROW_SCORE, SlotOpening, StepPlan

LIMITS = Limits(slots=5, pages_total=20, pages_max=12, page_tokens=16, max_model_len=100, vocab=50)


def opening(slot: int, **changes: Any) -> SlotOpening:
    """Return an opening of `slot`."""
    values: dict[str, Any] = {"temperature": 0.7, "top_p": 0.9, "top_k": 3, "min_p": 0.1}
    values |= {"seed": 2**64 - 2, "suppress_until": 9, "suppress": pack_ids([4, 2]), **changes}
    return SlotOpening(slot=slot, request=1, **values)


def plan_of(
    openings: list[SlotOpening] | None = None,
    pages: list[list[int]] | None = None,
    rows: list[list[int]] | None = None,
    ids: list[int] | None = None,
) -> StepPlan:
    """Return step 7."""
    flat = [pack_ids(number for entry in table or [] for number in entry) for table in (pages, rows)]
    return StepPlan(7, openings or [], flat[0], flat[1], pack_ids(ids or []))


@pytest.fixture
def pool() -> SlotPool:
    """Slot 2 holds 40 tokens in pages 5, 6 and 7."""
    pool = SlotPool(LIMITS.slots, LIMITS.max_model_len, LIMITS.page_tokens)
    plan = Plan(plan_of([opening(2)], [[2, 0, 0, 5], [2, 0, 1, 6], [2, 0, 2, 7]]), pool, LIMITS)
    plan.apply(pool)
    pool.last_id[2] = 33
    return pool


def test_opening_writes_everything(pool: SlotPool) -> None:
    """Settings arrive, and nothing of the old holder remains."""
    assert pool.page_table[2, :4].tolist() == [5, 6, 7, 0]
    Plan(plan_of([opening(2, seed=-3, temperature=0.0, suppress=b"")]), pool, LIMITS).apply(pool)
    assert not pool.page_table[2].any()
    assert (pool.last_id[2], pool.seed[2], pool.temperature[2], len(pool.suppress[2])) == (0, -3, 0.0, 0)
    assert (pool.top_k[2], pool.top_p[2], pool.min_p[2], pool.suppress_until[2]) == (3, 0.9, 0.1, 9)


def test_seed_keeps_its_bits(pool: SlotPool) -> None:
    """An unsigned seed is kept as the int64 of the same bits."""
    assert pool.seed[2] == -2
    assert pool.suppress[2].tolist() == [4, 2]


def test_rows_become_tensors(pool: SlotPool) -> None:
    """A decode row and a prefill row: ids, positions, places, and what is sampled."""
    rows = [[2, 1, 40, ROW_DECODE | ROW_SAMPLE], [3, 3, 15, ROW_SAMPLE]]
    plan = Plan(plan_of([opening(3)], [[3, 0, 0, 9], [3, 0, 1, 4]], rows, [10, 11, 12]), pool, LIMITS)
    plan.apply(pool)
    batch = cpu_batch(plan, pool)
    assert batch is not None
    step = batch.forward
    assert isinstance(step.rows, AttentionRows)
    assert step.ids.tolist() == [33, 10, 11, 12]
    assert step.positions.tolist() == [40, 15, 16, 17]
    assert step.places.tolist() == [7 * 16 + 8, 9 * 16 + 15, 4 * 16, 4 * 16 + 1]
    assert step.rows.queries.tolist() == [1, 3]
    assert step.rows.context.tolist() == [40, 15]
    assert step.rows.page_table.tolist() == [[5, 6, 7], [9, 4, 0]]
    assert step.outputs is not None
    assert step.outputs.tolist() == [0, 3]
    assert batch.sample_slots.tolist() == [2, 3]
    assert batch.sample_positions.tolist() == [41, 18]
    assert len(batch.score_ids) == 0


def test_tokens_to_score_are_asked_for_behind_the_rows_to_sample(pool: SlotPool) -> None:
    """Each but the prompt's last is scored by the id behind it, which the history has."""
    asked = opening(3, prompt_tokens=18, history=pack_ids(range(18)), prompt_logprobs=0)
    rows = [[3, 3, 15, ROW_SCORE | ROW_SAMPLE], [2, 1, 40, ROW_DECODE | ROW_SAMPLE]]
    plan = Plan(plan_of([asked], [[3, 0, 0, 9], [3, 0, 1, 4]], rows, [15, 16, 17]), pool, LIMITS)
    plan.apply(pool)
    batch = cpu_batch(plan, pool)
    assert batch is not None
    assert batch.forward.outputs is not None
    assert batch.forward.outputs.tolist() == [2, 3, 0, 1]
    assert batch.score_slots.tolist() == [3, 3]
    assert batch.score_ids.tolist() == [16, 17]


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "opening_of_padding": ({"openings": [opening(0)]}, "an opening's slot is 0; allowed are 1 to 4"),
    "opening_past_the_end": ({"openings": [opening(5)]}, "an opening's slot is 5"),
    "suppressed_id": ({"openings": [opening(1, suppress=pack_ids([50]))]}, "slot 1 is 50; allowed are 0 to 49"),
    "suppressed_bytes": ({"openings": [opening(1, suppress=b"abc")]}, "suppressed ids of slot 1 are 3 bytes"),
    "page_of_padding": ({"pages": [[2, 0, 3, 0]]}, "a page is 0; allowed are 1 to 19"),
    "page_past_the_end": ({"pages": [[2, 0, 3, 20]]}, "a page is 20"),
    "page_slot": ({"pages": [[5, 0, 0, 1]]}, "a page's slot is 5"),
    "page_group": ({"pages": [[2, 1, 0, 1]]}, "a page's group is 1; allowed are 0 to 0"),
    "page_index": ({"pages": [[2, 0, 12, 1]]}, "a page's index is 12"),
    "row_slot": ({"rows": [[0, 1, 0, 0]], "ids": [1]}, "a row's slot is 0"),
    "row_without_tokens": ({"rows": [[2, 0, 0, 0]]}, "a row's tokens is 0"),
    "row_before_the_start": ({"rows": [[2, 1, -1, 0]], "ids": [1]}, "a row's context is -1"),
    "row_past_the_end": ({"rows": [[2, 2, 99, 0]], "ids": [1, 2]}, "a row's end is 101; allowed are 1 to 100"),
    "wide_decode": ({"rows": [[2, 2, 40, ROW_DECODE]]}, "width of a row that reads its slot is 2"),
    "id": ({"rows": [[2, 1, 40, 0]], "ids": [50]}, "an id is 50; allowed are 0 to 49"),
    "too_few_ids": ({"rows": [[2, 2, 40, 0]], "ids": [1]}, "take 2 ids and it brings 1"),
    "too_many_ids": ({"rows": [[2, 1, 40, ROW_DECODE]], "ids": [1]}, "take 0 ids and it brings 1"),
    "slot_twice": ({"rows": [[2, 1, 40, 0], [2, 1, 41, 0]], "ids": [1, 2]}, "a slot has two rows"),
    "no_page": ({"rows": [[2, 1, 48, ROW_DECODE]]}, "slot 2 has no page at index 3 of the 4 it needs"),
    "pages_went_with_the_opening": (
        {"openings": [opening(2)], "rows": [[2, 1, 20, 0]], "ids": [1]},
        "slot 2 has no page at index 0 of the 2",
    ),
    "opened_twice": ({"openings": [opening(3), opening(3)]}, "a slot is opened twice: [3, 3]"),
    "suppressed_too_many": (
        {"openings": [opening(1, suppress=pack_ids([4] * 129))]},
        "129 suppressed ids of slot 1; at most 128 are allowed",
    ),
    "biased_id": ({"openings": [opening(1, bias_ids=pack_ids([-1]), bias_values=bytes(4))]}, "biased ids of slot 1"),
    "bias_without_value": ({"openings": [opening(1, bias_ids=pack_ids([4]))]}, "1 biased ids and 0 values"),
    "allowed_too_many": ({"openings": [opening(1, allowed=pack_ids([4] * 1025))]}, "1025 allowed ids of slot 1"),
    "bad_words_without_end": (
        {"openings": [opening(1, bad_word_ids=pack_ids([4, 5]), bad_word_ends=pack_ids([1]))]},
        "end at [1] and have 2 ids",
    ),
    "empty_bad_word": (
        {"openings": [opening(1, bad_word_ids=pack_ids([4]), bad_word_ends=pack_ids([1, 1]))]},
        "end at [1, 1] and have 1 ids",
    ),
    "history_past_the_end": (
        {"openings": [opening(1, history_first=99, history=pack_ids([4, 5]))]},
        "2 ids in the history of slot 1; at most 1 are allowed",
    ),
    "history_id": ({"openings": [opening(1, history=pack_ids([-1]))]}, "ids in the history of slot 1 is -1"),
    "too_many_logprobs": ({"openings": [opening(1, logprobs=21)]}, "log-probabilities of slot 1 is 21"),
    "entry_twice": ({"pages": [[2, 0, 3, 8], [2, 0, 3, 9]]}, "a page-table entry is written twice"),
    "gap": (
        {"openings": [opening(2)], "pages": [[2, 0, 1, 8]]},
        "slot 2 gets a page at index 1 and has none at 0",
    ),
}


@pytest.mark.parametrize(("plan", "words"), BAD.values(), ids=BAD)
def test_bad_plans_leave_no_trace(pool: SlotPool, plan: dict[str, Any], words: str) -> None:
    """The error names the step and the number, and no byte of the pool has changed."""
    state = {name: value.copy() for name, value in vars(pool).items() if isinstance(value, np.ndarray)}
    with pytest.raises(EngineError) as caught:
        Plan(plan_of(**plan), pool, LIMITS)
    assert words in caught.value.message
    assert "step 7" in caught.value.message
    for name, value in state.items():
        assert np.array_equal(getattr(pool, name), value), name


def test_ragged_arrays_are_refused(pool: SlotPool) -> None:
    """Bytes that are no whole entries are no plan."""
    with pytest.raises(EngineError, match="the rows are 12 bytes, no multiple of 16"):
        Plan(StepPlan(7, [], b"", b"\0" * 12, b""), pool, LIMITS)


def test_a_plan_may_hold_what_the_kernels_can() -> None:
    """The limits are written down on both sides of the border, which neither imports across."""
    for name in ("BIAS_MAX", "ALLOWED_MAX", "BAD_WORDS_MAX", "BAD_WORD_IDS_MAX"):
        assert getattr(executor, name) == getattr(edits, name), name
    for name in ("SUPPRESS_MAX", "LOGPROBS_MAX"):
        assert getattr(executor, name) == getattr(sampling, name), name
