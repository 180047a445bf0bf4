"""The face of the native scheduler: events in, plans out.

Owns the handle and the buffers that the core writes into. It decides nothing and keeps no request:
which request holds which slot and page, what comes next and when a request ends is the core's.
Every array goes in and out as the bytes of int32, in the layout of `messages/executor.py`.

Invariant: an event that raises has changed nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import TYPE_CHECKING

from tokenspeed import capi
from tokenspeed.capi import check, ffi, lib
from tokenspeed.errors import EngineError
from tokenspeed.ipc.trace import Trace
from tokenspeed.messages.executor import PAGE_INTS, ROW_INTS
from tokenspeed.scheduling.types import (
    CoreConfig,
    DuplicateRequestError,
    NeverFitsError,
    Opening,
    Outcome,
    Plan,
    Stats,
)

if TYPE_CHECKING:
    from tokenspeed._native import CData

__all__ = [
    "CoreConfig",
    "DuplicateRequestError",
    "NeverFitsError",
    "Opening",
    "Outcome",
    "Plan",
    "Scheduler",
    "Stats",
    "replay",
    "transitions",
]

INT_BYTES = 4
LOG_PART_BYTES = 1 << 20
GROUPS_MAX = 4
NAMESPACE_BYTES = 16
UINT64_MASK = 2**64 - 1
FINISH = ("", "stop", "length", "failed")
OUTCOME = Struct("=Qiiii")  # ts_outcome: request, first, offset, count, finish


class Scheduler:
    """The native core. One caller at a time; `now_us` is the caller's monotonic clock."""

    def __init__(self, config: CoreConfig, *, record: bool = False) -> None:
        handle = ffi.new("ts_scheduler **")
        check(lib.ts_scheduler_create(_native_config(config), handle))
        self._core = ffi.gc(handle[0], lib.ts_scheduler_destroy)
        if record:
            check(lib.ts_scheduler_record(self._core))
        self._buffers = _PlanBuffers(self._core)
        self._outcomes = ffi.new("ts_outcome[]", config.slots)
        self._ended = ffi.new("uint64_t[]", config.slots)

    def trace_to(self, trace: Trace) -> None:
        """Note in `trace`, which must outlive this, what befalls requests and steps from now on."""
        check(lib.ts_scheduler_trace(self._core, trace.handle))

    def submit(
        self,
        now_us: int,
        request: int,
        ids: bytes,
        *,
        resume: bytes = b"",
        max_tokens: int,
        end_ids: Sequence[int] = (),
        namespace: bytes = bytes(NAMESPACE_BYTES),
        session: int = 0,
        priority: int = 0,
        score: bool = False,
    ) -> bool:
        """Take a request in; return False if a cancel that came before has swallowed it.

        `ids` and `resume` (output ids of an earlier life) are int32 bytes; `max_tokens` counts
        output tokens, resumed ones included; any of `end_ids` ends the request. Prefixes are shared
        inside one `namespace` (16 bytes) only. With `score` the rows of the prompt are marked to be
        scored, and none of it is taken from the cache. Raises `NeverFitsError` or `DuplicateRequestError`.
        """
        if len(namespace) != NAMESPACE_BYTES:
            raise EngineError(f"a namespace has {NAMESPACE_BYTES} bytes, this one {len(namespace)}")
        ends = ffi.new("int32_t[]", list(end_ids))
        prompt, resumed = ffi.from_buffer(ids), ffi.from_buffer(resume)
        submission = ffi.new("ts_submission *")
        submission.request = request
        submission.session = session & UINT64_MASK
        submission.space_low = int.from_bytes(namespace[:8], "little")
        submission.space_high = int.from_bytes(namespace[8:], "little")
        submission.priority = priority
        submission.score = score
        submission.max_tokens = max_tokens
        submission.prompt = ffi.cast("int32_t *", prompt)
        submission.resume = ffi.cast("int32_t *", resumed)
        submission.end_ids = ends
        submission.prompt_len = len(ids) // INT_BYTES
        submission.resume_len = len(resume) // INT_BYTES
        submission.end_ids_len = len(end_ids)
        try:
            return check(lib.ts_scheduler_submit(self._core, now_us, submission)) == 1
        except capi.NeverFitsError as error:
            raise NeverFitsError(error.message, param="messages") from None
        except capi.DuplicateIdError as error:
            raise DuplicateRequestError(error.message) from None

    def cancel(self, now_us: int, request: int) -> bool:
        """End `request` now and return whether it was live; an unknown id leaves a tombstone."""
        return check(lib.ts_scheduler_cancel(self._core, now_us, request)) == 1

    def dropped(self, request: int, now_us: int = 0) -> None:
        """Forget the tombstone of `request`: it will never be submitted."""
        check(lib.ts_scheduler_dropped(self._core, now_us, request))

    def verdict(self, now_us: int, request: int, tokens_kept: int) -> bool:
        """End `request` after `tokens_kept` output tokens; return whether it was live.

        Pages of generated tokens that are in the index stay: the tokens were drawn, kept or not.
        """
        return check(lib.ts_scheduler_verdict(self._core, now_us, request, tokens_kept)) == 1

    def plan(self, now_us: int) -> Plan | None:
        """Plan a step; None when there is nothing to do or enough steps are in flight."""
        if check(lib.ts_scheduler_plan(self._core, now_us, self._buffers.plan)) == 0:
            return None
        return self._buffers.read()

    def result(self, now_us: int, step: int, step_us: int, counts: bytes, ids: bytes) -> list[Outcome]:
        """Take the ids of the oldest step in flight: `counts` per sampled row (-1: it failed), then all ids.

        Returns an outcome for each sampled row whose request is live, in row order.
        """
        count_ints, id_ints = ffi.from_buffer(counts), ffi.from_buffer(ids)
        live = check(
            lib.ts_scheduler_result(
                self._core,
                now_us,
                step,
                step_us,
                ffi.cast("int32_t *", count_ints),
                len(counts) // INT_BYTES,
                ffi.cast("int32_t *", id_ints),
                len(ids) // INT_BYTES,
                self._outcomes,
                len(self._outcomes),
            )
        )
        # One unpacking for all: reading fields through cffi costs more than the scheduler itself.
        return [
            Outcome(
                request, first, bytes(ids[offset * INT_BYTES : (offset + count) * INT_BYTES]), FINISH[finish], offset
            )
            for request, first, offset, count, finish in OUTCOME.iter_unpack(
                ffi.buffer(self._outcomes, live * OUTCOME.size)
            )
        ]

    def step_failed(self, now_us: int, step: int) -> list[int]:
        """End the live requests that the oldest step in flight names, and return them."""
        ended = check(lib.ts_scheduler_step_failed(self._core, now_us, step, self._ended, len(self._ended)))
        return [self._ended[i] for i in range(ended)]

    def executor_lost(self, now_us: int) -> None:
        """Forget device pages and steps in flight; everything that ran is computed again."""
        check(lib.ts_scheduler_executor_lost(self._core, now_us))

    def flush(self, now_us: int = 0) -> int:
        """Forget every cached prefix and return the pages freed; what runs keeps its own."""
        return check(lib.ts_scheduler_flush(self._core, now_us))

    def cached_tokens(self, request: int) -> int:
        """Return the prompt tokens found in the cache when `request` was first admitted.

        Known from its first plan until the result after the one that ended it.
        """
        return check(lib.ts_scheduler_cached_tokens(self._core, request))

    def state(self, request: int) -> str:
        """Return the name of the state of `request`."""
        return _text(lib.ts_state_name(check(lib.ts_scheduler_state(self._core, request))))

    def stats(self) -> Stats:
        """Return the counters and page classes of this moment."""
        found = ffi.new("ts_scheduler_stats_t *")
        check(lib.ts_scheduler_stats(self._core, found))
        return Stats(*(_total(getattr(found, name)) for name in Stats._fields))

    def check(self) -> None:
        """Audit everything; raise `EngineError` naming the broken invariant."""
        check(lib.ts_scheduler_check(self._core))

    def log(self) -> bytes:
        """Take what was recorded since the last call; all parts together make a log for `replay`."""
        part = ffi.new("uint8_t[]", LOG_PART_BYTES)
        parts = []
        while size := check(lib.ts_scheduler_log(self._core, part, LOG_PART_BYTES)):
            parts.append(bytes(ffi.buffer(part, size)))
        return b"".join(parts)

    def close(self) -> None:
        """Free the core; the object is of no use afterwards."""
        ffi.release(self._core)


class _PlanBuffers:
    """The buffers that one plan is written into, as large as any plan can be."""

    def __init__(self, core: CData) -> None:
        plan = ffi.new("ts_plan *")
        check(lib.ts_scheduler_plan_limits(core, plan))
        # malloc without clearing: the page buffer is large and hardly ever used to its end.
        new = ffi.new_allocator(should_clear_after_alloc=False)
        self._openings = new("ts_opening[]", plan.openings_max)
        self._rows = new("int32_t[]", plan.rows_max * ROW_INTS)
        self._ids = new("int32_t[]", plan.ids_max)
        self._pages = new("int32_t[]", plan.pages_max * PAGE_INTS)
        plan.openings, plan.rows = self._openings, self._rows
        plan.ids, plan.pages = self._ids, self._pages
        self.plan = plan

    def read(self) -> Plan:
        """Return what the core has written."""
        plan = self.plan
        openings = self._openings
        return Plan(
            plan.step,
            [Opening(openings[i].slot, openings[i].request) for i in range(plan.openings_len)],
            _bytes(self._rows, plan.rows_len * ROW_INTS),
            _bytes(self._ids, plan.ids_len),
            _bytes(self._pages, plan.pages_len * PAGE_INTS),
            plan.sample_rows,
            plan.tokens,
        )


def replay(log: bytes) -> None:
    """Feed a whole log to a new core; raise `EngineError` at the first answer that differs."""
    handle = ffi.new("ts_scheduler **")
    check(lib.ts_scheduler_replay(ffi.cast("uint8_t *", ffi.from_buffer(log)), len(log), handle))
    lib.ts_scheduler_destroy(handle[0])


def transitions() -> dict[str, dict[str, str | None]]:
    """Return the state machine: `[state][event]` is the next state, None if illegal."""
    states = [_text(lib.ts_state_name(i)) for i in range(lib.ts_state_count())]
    events = [_text(lib.ts_event_name(i)) for i in range(lib.ts_event_count())]
    return {
        state: {
            event: states[target] if (target := lib.ts_state_next(i, j)) >= 0 else None
            for j, event in enumerate(events)
        }
        for i, state in enumerate(states)
    }


def _native_config(config: CoreConfig) -> CData:
    groups = len(config.pages_total)
    if len(config.windows) != groups or not 1 <= groups <= GROUPS_MAX:
        raise EngineError(
            f"{groups} page totals and {len(config.windows)} windows were given; "
            f"one of each per cache group is needed, for 1 to {GROUPS_MAX} groups"
        )
    native = ffi.new("ts_scheduler_config *")
    for name in CoreConfig.__struct_fields__:
        if name not in ("pages_total", "windows"):
            setattr(native, name, int(getattr(config, name)))
    native.groups = groups
    for group in range(groups):
        native.pages_total[group] = config.pages_total[group]
        native.windows[group] = config.windows[group]
    return native


def _bytes(ints: CData, count: int) -> bytes:
    return bytes(ffi.buffer(ints, count * INT_BYTES))


def _text(native: CData) -> str:
    text = ffi.string(native)
    return text.decode() if isinstance(text, bytes) else text


def _total(value: CData | int) -> int:
    return value if isinstance(value, int) else sum(value)
