"""What is known of an engine's recent past: its steps, its requests, and what else went on.

Owns what several requests' stories share, computed once from the points of all actors. It does not know
words. Requests that were admitted before the oldest point are not counted as running.

Invariant: nothing here changes after it was made.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from operator import attrgetter, itemgetter

from tokenspeed.observe.attach import EdgeEntry
from tokenspeed.points import Kind, Point
from tokenspeed_tools.trace.life import Life, life_of
from tokenspeed_tools.trace.steps import Busy, Points, Span, Step, between, steps_of
from tokenspeed_tools.trace.words import listed

OF_REQUESTS_END = Kind.PLAN_BEGIN  # kinds below it are of a request


class Past:
    """Points of each actor, by name, in the order of time, and what they mean together.

    `edges` are those of the topology, in its order.
    """

    def __init__(self, points: Points, now_ns: int, edges: Sequence[EdgeEntry] = ()) -> None:
        self.now_ns = now_ns
        self.begins = {actor: each[0].time_ns for actor, each in points.items() if each}
        self.collections = {actor: Busy(between(each, Kind.GC_BEGIN, Kind.GC_END)) for actor, each in points.items()}
        self.starts = sorted(
            (point.time_ns, actor) for actor, each in points.items() for point in each if point.kind is Kind.STARTED
        )
        computed = [step for step in steps_of(points) if step.end_ns is not None or step.begin_ns is not None]
        names = [f"{edge.writer} to {listed(edge.readers)}" for edge in edges]
        self.full = [
            (point.time_ns, names[point.step])
            for each in points.values()
            for point in each
            if point.kind is Kind.RING_FULL and point.step < len(names)
        ]
        self.steps: Sequence[Step] = sorted(computed, key=_step_end)
        self._ends = [_step_end(step) for step in self.steps]
        self._own = _by_request(points)
        self._steps_of = _steps_by_request(self.steps)
        self._running = _running(points.get("scheduler", ()))
        self._encoded = sorted((span, request) for request, own in self._own.items() for span in _encodings(own))
        self._engine = [point.time_ns for point in points.get("engine", ())]

    @property
    def requests(self) -> list[int]:
        """Return the numbers of all requests, in the order in which they came."""
        return sorted(self._own)

    def life(self, request: int) -> Life | None:
        """Return the life of `request`, None if no point of it is left."""
        points = self._own.get(request)
        return life_of(points, self._steps_of.get(request, ()), self.now_ns) if points else None

    def steps_in(self, span: Span) -> Sequence[Step]:
        """Return the steps that ended inside `span`, its ends left out."""
        return self.steps[bisect_right(self._ends, span.begin_ns) : bisect_left(self._ends, span.end_ns)]

    def running(self, time_ns: int) -> int:
        """Return how many requests held a slot from `time_ns` on."""
        index = bisect_right(self._running, time_ns, key=itemgetter(0)) - 1
        return self._running[index][1] if index >= 0 else 0

    def engine_points(self, span: Span) -> int:
        """Return how many points the engine's process wrote inside `span`: whether its loop went on."""
        return bisect_left(self._engine, span.end_ns) - bisect_right(self._engine, span.begin_ns)

    def encoded(self, span: Span) -> list[int]:
        """Return the requests whose prompts were encoded during at least a tenth of `span`."""
        least = (span.end_ns - span.begin_ns) / 10
        return sorted({request for each, request in self._encoded if each.overlap_ns(span) > least})

    def prompt_tokens(self, span: Span, but: int = 0) -> dict[int, int]:
        """Return the prompt tokens of each request but one that steps which ended inside `span` computed."""
        tokens: dict[int, int] = {}
        for step in self.steps_in(span):
            for request, count in step.chunks.items():
                if request != but:
                    tokens[request] = tokens.get(request, 0) + count
        return tokens

    def missing(self, life: Life) -> list[str]:
        """Return the actors whose oldest point is younger than the begin of `life`."""
        return [actor for actor, begin in self.begins.items() if begin > life.begin_ns]


def _step_end(step: Step) -> int:
    return step.end_ns or step.begin_ns or 0


def _by_request(points: Points) -> dict[int, list[Point]]:
    own: dict[int, list[Point]] = {}
    for each in points.values():
        for point in each:
            if point.request and point.kind < OF_REQUESTS_END:
                own.setdefault(point.request, []).append(point)
    for found in own.values():
        found.sort(key=attrgetter("time_ns"))
    return own


def _encodings(points: Sequence[Point]) -> Iterator[Span]:
    begun: int | None = None
    for point in points:
        if point.kind is Kind.ENCODE_BEGIN:
            begun = point.time_ns
        elif point.kind in (Kind.TOKENIZED, Kind.REFUSED) and begun is not None:
            yield Span(begun, point.time_ns)
            begun = None


def _steps_by_request(steps: Sequence[Step]) -> Mapping[int, list[Step]]:
    found: dict[int, list[Step]] = {}
    for step in steps:
        for request in {*step.chunks, *step.results}:
            found.setdefault(request, []).append(step)
    return found


def _running(points: Sequence[Point]) -> list[tuple[int, int]]:
    """Return how many requests hold a slot from each time on."""
    holding: set[int] = set()
    deltas: list[tuple[int, int]] = []
    for point in points:
        if point.kind is Kind.ADMITTED and point.request not in holding:
            holding.add(point.request)
            deltas.append((point.time_ns, 1))
        elif point.kind in (Kind.ENDED, Kind.CANCELLED, Kind.RETRACTED) and point.request in holding:
            holding.remove(point.request)
            deltas.append((point.time_ns, -1))
    counts = accumulate(delta for _, delta in deltas)
    return [(time_ns, count) for (time_ns, _), count in zip(deltas, counts, strict=True)]
