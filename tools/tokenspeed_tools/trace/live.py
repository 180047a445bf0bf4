"""The state of a running engine, second by second, from its points.

Owns what `top` shows, as numbers. It knows nothing of terminals, and asks nobody: what the points cannot
tell (pages) is given. A request that began before the looking did has an ITL and no TTFT.

Invariant: each point counts once, and what is remembered is bounded by what is open and by a window's points.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

import msgspec

from tokenspeed.observe.attach import EdgeEntry, Topology
from tokenspeed.points import Kind, Point, rows_and_tokens
from tokenspeed_tools.bench.summary import quantile
from tokenspeed_tools.trace.recent import Recent
from tokenspeed_tools.trace.shares import Shares

RATE_S = 3.0
LATENCY_S = 10.0
TTFTS = 6
MS = 1e6  # ns


class Ring(msgspec.Struct, frozen=True):
    """A ring now: messages in each second, and the most bytes that waited on it since the last look."""

    writer: str
    reader: str
    messages_per_s: float
    fill_bytes: int
    capacity_bytes: int


class Snapshot(msgspec.Struct, frozen=True):
    """The engine now. Rates and shares are those of the last 3 s, latencies those of the last 10 s.

    `shares` are of the time, by what it went to; `pages` and the like are None where the engine was not asked
    or did not answer.
    """

    steps_per_s: float
    tokens_per_s: float
    prompt_tokens_per_s: float
    shares: dict[str, float]
    running: int
    waiting: int
    hit_share: float | None
    itl_ms_p50: float | None
    itl_ms_p99: float | None
    ttft_ms: tuple[float, ...]
    rings: tuple[Ring, ...]
    busy: dict[str, float]
    restarts: dict[str, int]
    lost: int
    pages: dict[str, int] | None = None


class Live:
    """Takes points as they come."""

    def __init__(self, topology: Topology, begin_ns: int) -> None:
        self._begin_ns = begin_ns
        self._shares = Shares(begin_ns)
        self._steps, self._tokens, self._prompt_tokens = (Recent(RATE_S) for _ in range(3))
        self._found, self._looked_for = Recent(LATENCY_S), Recent(LATENCY_S)
        self._busy = {entry.name: Recent(RATE_S) for entry in topology.actors}
        self._restarts = {entry.name: 0 for entry in topology.actors}
        self._queue = _Queue()
        self._answers = _Answers()
        self._rings = [_Ring(edge) for edge in topology.edges]

    def feed(self, points: Mapping[str, Sequence[Point]]) -> None:
        """Take the points that each actor wrote since the last call."""
        self._shares.feed(points)
        for actor, new in points.items():
            turn_ns = 0
            for point in new:
                if point.kind is Kind.TURN_BEGIN:
                    turn_ns = point.time_ns
                elif point.kind is Kind.TURN_END and turn_ns:
                    self._busy[actor].add(point.time_ns, point.time_ns - turn_ns)
                elif point.kind is Kind.STARTED:
                    self._restarted(actor)
                else:
                    self._take(actor, point)

    def snapshot(self, now_ns: int, lost: int, stats: Mapping[str, int] | None = None) -> Snapshot:
        """Return the state at `now_ns`. `stats` are the scheduler's own counters, if it was asked."""
        self._answers.forget(now_ns)
        gaps = sorted(self._answers.gaps.amounts(now_ns))
        looked_for = self._looked_for.total(now_ns)
        told = stats or {}
        seconds = max(1e-9, min(RATE_S, (now_ns - self._begin_ns) / 1e9))
        return Snapshot(
            steps_per_s=self._steps.per_s(now_ns, self._begin_ns),
            tokens_per_s=self._tokens.per_s(now_ns, self._begin_ns),
            prompt_tokens_per_s=self._prompt_tokens.per_s(now_ns, self._begin_ns),
            shares=self._shares.shares(now_ns, RATE_S),
            running=told.get("requests_running", len(self._queue.running)),
            waiting=told.get("requests_waiting", len(self._queue.waiting)),
            hit_share=self._found.total(now_ns) / looked_for if looked_for else None,
            itl_ms_p50=quantile(gaps, 0.5) / MS if gaps else None,
            itl_ms_p99=quantile(gaps, 0.99) / MS if gaps else None,
            ttft_ms=tuple(ns / MS for ns in self._answers.ttfts),
            rings=tuple(ring.look(now_ns, self._begin_ns) for ring in self._rings),
            busy={actor: min(1.0, busy.total(now_ns) / 1e9 / seconds) for actor, busy in self._busy.items()},
            restarts=dict(self._restarts),
            lost=lost,
            pages=None if stats is None else {name: count for name, count in stats.items() if name.startswith("pages")},
        )

    def _take(self, actor: str, point: Point) -> None:
        match point.kind:
            case Kind.RING_SENT | Kind.RING_RECEIVED if point.step < len(self._rings):
                self._rings[point.step].take(actor, point)
            case Kind.APPLIED:
                self._steps.add(point.time_ns)
            case Kind.PLANNED:
                self._prompt_tokens.add(point.time_ns, rows_and_tokens(point.value)[1])
            case Kind.RESULT:
                self._tokens.add(point.time_ns, point.value)
                self._queue.took_part(point.request)
            case Kind.ADMITTED:
                self._admitted(point)
            case _ if actor == "scheduler":
                self._queue.take(point)
            case _:
                self._answers.take(point)

    def _admitted(self, point: Point) -> None:
        prompt_tokens = self._queue.admit(point.request)
        if prompt_tokens:
            self._looked_for.add(point.time_ns, prompt_tokens)
            self._found.add(point.time_ns, min(point.value, prompt_tokens))

    def _restarted(self, actor: str) -> None:
        self._restarts[actor] += 1
        if actor == "scheduler":
            self._queue = _Queue()
        for ring in self._rings:
            ring.restarted(actor)


class _Queue:
    """Which requests wait and which run, as far as points told."""

    def __init__(self) -> None:
        self.waiting: dict[int, int] = {}  # with the tokens of its prompt, 0 when it runs for the second time
        self.running: set[int] = set()

    def take(self, point: Point) -> None:
        match point.kind:
            case Kind.SUBMITTED:
                self.waiting[point.request] = point.value
            case Kind.RETRACTED:
                self.running.discard(point.request)
                self.waiting[point.request] = 0
            case Kind.ENDED | Kind.CANCELLED | Kind.REFUSED:
                self.running.discard(point.request)
                self.waiting.pop(point.request, None)

    def admit(self, request: int) -> int:
        """Note that it runs, and return the tokens of its prompt; 0 if they are unknown or were counted before."""
        self.running.add(request)
        return self.waiting.pop(request, 0)

    def took_part(self, request: int) -> None:
        if request not in self.waiting:
            self.running.add(request)


class _Answers:
    """When answers began and went on, at the doors. The last pieces are written behind a request's end."""

    def __init__(self) -> None:
        self.gaps = Recent(LATENCY_S)
        self.ttfts: deque[int] = deque(maxlen=TTFTS)
        self._received: dict[int, int] = {}
        self._written: dict[int, int] = {}
        self._finished: deque[tuple[int, int]] = deque()

    def take(self, point: Point) -> None:
        match point.kind:
            case Kind.RECEIVED | Kind.OPENED:
                self._received.setdefault(point.request, point.time_ns)
            case Kind.WRITTEN:
                self._written_at(point.request, point.time_ns)
            case Kind.FINISHED:
                self._finished.append((point.time_ns, point.request))

    def forget(self, now_ns: int) -> None:
        """Let go of requests that ended a while ago."""
        while self._finished and self._finished[0][0] < now_ns - LATENCY_S * 1e9:
            _, request = self._finished.popleft()
            self._received.pop(request, None)
            self._written.pop(request, None)

    def _written_at(self, request: int, time_ns: int) -> None:
        received_ns = self._received.pop(request, None)
        if received_ns is not None:
            self.ttfts.append(time_ns - received_ns)
        elif (before_ns := self._written.get(request)) is not None:
            self.gaps.add(time_ns, time_ns - before_ns)
        self._written[request] = time_ns


class _Ring:
    """A ring's traffic as its writer and its first reader tell."""

    def __init__(self, edge: EdgeEntry) -> None:
        self._edge = edge
        self._messages = Recent(RATE_S)
        self._fresh: list[tuple[int, int]] = []
        self._fill_bytes = 0

    def take(self, actor: str, point: Point) -> None:
        if point.kind is Kind.RING_SENT:
            self._messages.add(point.time_ns)
            self._fresh.append((point.time_ns, point.value))
        elif actor == self._edge.readers[0]:
            self._fresh.append((point.time_ns, -point.value))

    def restarted(self, actor: str) -> None:
        """Forget what waits if the ring was replaced."""
        if actor in (self._edge.writer, *self._edge.readers):
            self._fresh.clear()
            self._fill_bytes = 0

    def look(self, now_ns: int, since_ns: int) -> Ring:
        """Return the state, with the fullest moment since the last look."""
        fullest = self._fill_bytes
        for _, change in sorted(self._fresh):
            # What was sent before the looking began is received and was not counted.
            self._fill_bytes = max(0, self._fill_bytes + change)
            fullest = max(fullest, self._fill_bytes)
        self._fresh.clear()
        rate = self._messages.per_s(now_ns, since_ns)
        return Ring(self._edge.writer, self._edge.readers[0], rate, fullest, self._edge.capacity_bytes)
