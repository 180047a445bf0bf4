"""The way of a token behind its step: from the device to the client's socket.

Owns the legs of that way. Text has no step's number once it is in the engine: the texts of a request and
what the engine received of it are matched in their order.

Invariant: the legs of a token follow each other and fill its way exactly.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from tokenspeed.points import Kind, Point
from tokenspeed_tools.trace.critical import APPLY, BATCH, RESULT_RING, RESULT_SENT, WAKES, Mark, Part, fill
from tokenspeed_tools.trace.steps import Points, Span, Step, steps_of, turns

BATCH_RING = "ids: ring to the detokenizer"
TEXT = "detokenizer: ids become text"
TEXT_RING = "text: ring to the engine"
ENGINE = "engine: takes the text"
WRITE = "door: writes to the socket"
OF_STEP = {
    Kind.IDS_DOWN: WAKES,
    Kind.RESULT_SENT: RESULT_SENT,
    Kind.RESULT_RECEIVED: RESULT_RING,
    Kind.APPLIED: APPLY,
    Kind.BATCH_SENT: BATCH,
}
LEGS = (*OF_STEP.values(), BATCH_RING, TEXT, TEXT_RING, ENGINE, WRITE)


class Way(msgspec.Struct, frozen=True):
    """The way of what `step` brought to one request."""

    step: Step
    request: int
    span: Span
    parts: tuple[Part, ...]

    @property
    def total_ns(self) -> int:
        """Return the whole."""
        return self.span.end_ns - self.span.begin_ns


class _Outputs:
    """When a request's text was made, by step, when the engine had it and when it was written."""

    def __init__(self) -> None:
        self.texts: list[Point] = []
        self.deltas: list[int] = []
        self.writes: list[int] = []

    def ways(self) -> Iterator[tuple[int, int, int, int | None]]:
        """Yield for each text its step, and the times of text, delta and write."""
        deltas, writes = iter(self.deltas), iter(self.writes)
        write = next(writes, None)
        for text in self.texts:
            delta = next((time_ns for time_ns in deltas if time_ns >= text.time_ns), None)
            if delta is None:
                return
            while write is not None and write < delta:
                write = next(writes, None)
            yield text.step, text.time_ns, delta, write


def ways(points: Points) -> list[Way]:
    """Return the way of each token whose points are all there; it ends in the engine where no door writes."""
    steps = {step.number: step for step in steps_of(points)}
    detokenizer, engine = turns(points.get("detokenizer", ())), turns(points.get("engine", ()))
    found = []
    for request, outputs in _outputs(points).items():
        for number, text, delta, write in outputs.ways():
            step = steps.get(number)
            if step is None or not {Kind.COMPUTE_END, Kind.BATCH_SENT} <= step.times.keys():
                continue
            begin, sent = step.times[Kind.COMPUTE_END], step.times[Kind.BATCH_SENT]
            marks = [Mark(step.times[kind], row) for kind, row in OF_STEP.items() if kind in step.times]
            taken, received = detokenizer.at(text), engine.at(delta)
            marks += [Mark(max(sent, taken.begin_ns) if taken else text, BATCH_RING), Mark(text, TEXT)]
            marks += [Mark(max(text, received.begin_ns) if received else delta, TEXT_RING), Mark(delta, ENGINE)]
            marks += [Mark(write, WRITE)] if write is not None else []
            span = Span(begin, marks[-1].time_ns)
            if begin <= text:
                found.append(Way(step, request, span, tuple(fill(span, marks))))
    return found


def _outputs(points: Points) -> Mapping[int, _Outputs]:
    found: dict[int, _Outputs] = {}
    for point in _points_of(points, "detokenizer", Kind.TEXT):
        found.setdefault(point.request, _Outputs()).texts.append(point)
    for point in _points_of(points, "engine", Kind.DELTA):
        found.setdefault(point.request, _Outputs()).deltas.append(point.time_ns)
    for point in _points_of(points, "engine", Kind.WRITTEN):
        found.setdefault(point.request, _Outputs()).writes.append(point.time_ns)
    return found


def _points_of(points: Points, actor: str, kind: Kind) -> Sequence[Point]:
    return [point for point in points.get(actor, ()) if point.kind is kind]
