"""A request's life, put together from its points: what it did or waited for, part after part.

Owns the rule that turns points into parts. It does not know why a part took long (`story`). A step that a
request has a row in counts from the device's begin to the device's end; what lies between two of its steps
is a gap. Ids become text while the next step computes, so text and delivery are parts of their own only
behind the last step. Times that the scheduler notes are whole microseconds.

Invariant: the parts follow each other without a gap, and their sum is the time from the first point to the
end exactly.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import NamedTuple

import msgspec

from tokenspeed.points import Finish, Kind, Point, Wait
from tokenspeed_tools.trace.steps import Step


class Doing(StrEnum):
    """What a request does, or waits for."""

    RECEIVED = "received and checked"
    TO_TOKENIZER = "on its way to the tokenizer"
    ENCODE_WAIT = "waited for a thread to encode its prompt"
    ENCODE = "prompt rendered and encoded"
    TO_SCHEDULER = "on its way to the scheduler"
    ADMISSION = "waited for admission"
    ADMITTED = "planned, on its way to the device"
    PROMPT = "prompt computed"
    PROMPT_GAP = "between parts of the prompt"
    DECODE = "token computed"
    DECODE_GAP = "between tokens"
    RETRACTED = "gave its pages up, waited to be computed again"
    TEXT = "last ids became text"
    TO_ENGINE = "last text on its way to the engine"
    DELIVERY = "last text written to the client"
    ENDING = "the scheduler had ended it, its end on the way"


AT_POINT = {
    Kind.RECEIVED: Doing.RECEIVED,
    Kind.OPENED: Doing.TO_TOKENIZER,
    Kind.TOKENIZE_BEGIN: Doing.ENCODE_WAIT,
    Kind.ENCODE_BEGIN: Doing.ENCODE,
    Kind.TOKENIZED: Doing.TO_SCHEDULER,
    Kind.SUBMITTED: Doing.ADMISSION,
    Kind.WAITS: Doing.ADMISSION,
    Kind.ADMITTED: Doing.ADMITTED,
    Kind.RETRACTED: Doing.RETRACTED,
    Kind.REFUSED: Doing.ENDING,
    Kind.CANCELLED: Doing.ENDING,
}
OVER = (Kind.ENDED, Kind.FINISHED, Kind.CANCELLED, Kind.REFUSED)


class LifePart(NamedTuple):
    """A piece of a life. `step` is the step that it was in, `wait` why it was not admitted, if that is known."""

    doing: Doing
    begin_ns: int
    end_ns: int
    step: Step | None = None
    wait: Wait | None = None

    @property
    def ns(self) -> int:
        """Return how long it took."""
        return self.end_ns - self.begin_ns


class Life(msgspec.Struct, frozen=True):
    """A request from its first point to its end, or to now while it `is_open`.

    `is_whole` says that its beginning is among the points. `first_ns` is when its first text was written, or
    came to the engine where no door writes; None if there is none yet.
    """

    request: int
    begin_ns: int
    end_ns: int
    parts: tuple[LifePart, ...]
    points: tuple[Point, ...]
    is_open: bool
    is_whole: bool
    finish: Finish | None
    first_ns: int | None

    @property
    def e2e_ns(self) -> int:
        """Return how long it lasted."""
        return self.end_ns - self.begin_ns

    @property
    def ttft_ns(self) -> int | None:
        """Return how long the first text took."""
        return None if self.first_ns is None else self.first_ns - self.begin_ns

    @property
    def sent_whole(self) -> bool:
        """Return whether its answer was not streamed: all of it was written at once, when it had ended."""
        return _sent_whole(self.points)

    @property
    def prompt_tokens(self) -> int:
        """Return the tokens of its prompt, 0 if that is not known."""
        return max((p.value for p in self.points if p.kind in (Kind.TOKENIZED, Kind.SUBMITTED)), default=0)

    @property
    def cached_tokens(self) -> int:
        """Return how many of them were found in the cache when it was admitted first."""
        found = next((point.value for point in self.points if point.kind is Kind.ADMITTED), 0)
        return min(found, self.prompt_tokens)

    @property
    def output_tokens(self) -> int:
        """Return the ids that reached the engine, or, if none of those points is left, those that were computed."""
        delivered = [point.value for point in self.points if point.kind is Kind.DELTA]
        return max(delivered, default=sum(point.value for point in self.points if point.kind is Kind.RESULT))

    def times(self, kind: Kind) -> list[int]:
        """Return when `kind` was noted, in order."""
        return [point.time_ns for point in self.points if point.kind is kind]

    def value(self, kind: Kind, part: LifePart) -> int:
        """Return the value of the last `kind` up to the begin of `part`, 0 if there was none."""
        values = (p.value for p in reversed(self.points) if p.kind is kind and p.time_ns <= part.begin_ns)
        return next(values, 0)

    def of(self, *doing: Doing) -> list[LifePart]:
        """Return the parts in which it did one of `doing`."""
        return [part for part in self.parts if part.doing in doing]


class Change(NamedTuple):
    """At `time_ns` the request begins to do something else; a step's end changes only what its begin did."""

    time_ns: int
    doing: Doing
    step: Step | None = None
    wait: Wait | None = None
    ends: bool = False


def life_of(points: Sequence[Point], steps: Sequence[Step], now_ns: int) -> Life:
    """Return the life that `points` tell, all of one request, at least one, in the order of time.

    `steps` are those with a row of it. One that has not ended lasts until `now_ns`.
    """
    request, begin = points[0].request, points[0].time_ns
    finished = [point for point in points if point.kind is Kind.FINISHED]
    is_over = any(point.kind in OVER for point in points)
    end = _end(points) if finished else points[-1].time_ns if is_over else max(now_ns, points[-1].time_ns)
    changes = sorted(_changes(points, steps, is_over=is_over), key=_time)
    return Life(
        request=request,
        begin_ns=begin,
        end_ns=end,
        parts=tuple(_parts(changes, begin, end)),
        points=tuple(points),
        is_open=not is_over,
        is_whole=points[0].kind in (Kind.RECEIVED, Kind.OPENED),
        finish=Finish(finished[-1].value) if finished else None,
        first_ns=_first(points),
    )


def _end(points: Sequence[Point]) -> int:
    # With the end comes the last text, which is noted behind it.
    return max(point.time_ns for point in points if point.kind in (Kind.FINISHED, Kind.DELTA, Kind.WRITTEN))


def _first(points: Sequence[Point]) -> int | None:
    deltas = (point.time_ns for point in points if point.kind is Kind.DELTA)
    delta = next(deltas, None)
    if delta is None or _sent_whole(points):
        return delta
    return next((p.time_ns for p in points if p.kind is Kind.WRITTEN and p.time_ns >= delta), delta)


def _sent_whole(points: Sequence[Point]) -> bool:
    kinds = [point.kind for point in points if point.kind in (Kind.DELTA, Kind.FINISHED, Kind.WRITTEN)]
    written_once = kinds.count(Kind.WRITTEN) == 1 and kinds[-1] is Kind.WRITTEN
    return written_once and Kind.FINISHED in kinds and kinds.count(Kind.DELTA) > 1


def _time(change: Change) -> int:
    return change.time_ns


def _changes(points: Sequence[Point], steps: Sequence[Step], *, is_over: bool) -> Iterator[Change]:
    for point in points:
        if point.kind in AT_POINT:
            wait = Wait(point.value) if point.kind is Kind.WAITS else None
            yield Change(point.time_ns, AT_POINT[point.kind], wait=wait)
    request = points[0].request
    ends = [step.end_ns for step in steps if step.end_ns is not None]
    last = max(ends, default=points[0].time_ns)
    for step in steps:
        yield from _step_changes(step, request, is_last=is_over and step.end_ns == last)
    if is_over:
        yield from _after(points, last)


def _step_changes(step: Step, request: int, *, is_last: bool) -> Iterator[Change]:
    begin, end = step.begin_ns, step.end_ns
    in_prompt = request in step.chunks
    if begin is not None:
        yield Change(begin, Doing.PROMPT if in_prompt else Doing.DECODE, step)
    if end is not None:
        gap = Doing.PROMPT_GAP if in_prompt and request not in step.results else Doing.DECODE_GAP
        yield Change(end, Doing.TEXT if is_last else gap, step, ends=True)


def _after(points: Sequence[Point], last: int) -> Iterator[Change]:
    """Yield what follows the last step's end, at `last`."""
    for kind, doing in ((Kind.TEXT, Doing.TO_ENGINE), (Kind.DELTA, Doing.DELIVERY), (Kind.FINISHED, Doing.DELIVERY)):
        time_ns = max((point.time_ns for point in points if point.kind is kind), default=0)
        if time_ns >= last:
            yield Change(time_ns, doing)


def _parts(changes: Sequence[Change], begin: int, end: int) -> Iterator[LifePart]:
    """Cut the time from `begin` to `end` at `changes`."""
    now = LifePart(changes[0].doing if changes else Doing.DELIVERY, begin, begin)
    for change in changes:
        if not _counts(change, now):
            continue
        at = min(max(change.time_ns, now.begin_ns), end)
        if at > now.begin_ns:
            yield now._replace(end_ns=at)
        now = LifePart(change.doing, at, at, None if change.ends else change.step, change.wait)
    if end > now.begin_ns:
        yield now._replace(end_ns=end)


def _counts(change: Change, now: LifePart) -> bool:
    if change.ends:
        return now.step is change.step
    if (change.doing, change.step, change.wait) == (now.doing, now.step, now.wait):
        return False  # it goes on
    # A step that was under way when the request gave its pages up.
    return change.step is None or now.doing is not Doing.RETRACTED
