"""Made-up pasts of an engine: the points that its actors would have written, with all that may go wrong."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from tokenspeed_tools.trace.cost import NATIVE
from tokenspeed_tools.trace.recording import Recording

from tokenspeed.observe.attach import EdgeEntry, Topology
from tokenspeed.points import ROWS_SHIFT, Finish, Kind, Point, Stage, Wait

ACTORS = ("engine", "tokenizer", "scheduler", "executor", "detokenizer")
Points = dict[str, list[Point]]


EDGES = (EdgeEntry("scheduler", ("executor",), 1 << 20, 1),)


def recorded(points: Points, end_ns: int) -> Recording:
    """Return a recording of `points` as if they had been in the buffers of an engine."""
    topology = Topology(2, 999_999_999, "0.1.0", (), EDGES, ())
    return Recording(topology, end_ns, end_ns, 0.0, points, dict.fromkeys(points, 0))


class Tape:
    """Points by actor, written at a clock that goes on by `tick`."""

    def __init__(self, tick: Callable[[], int] = lambda: 1000) -> None:
        self.points: Points = {actor: [] for actor in ACTORS}
        self.now_ns = 1_000_000
        self._tick = tick
        for actor in ACTORS[1:]:
            self.note(actor, Kind.STARTED)

    def note(self, actor: str, kind: Kind, request: int = 0, step: int = 0, value: int = 0) -> int:
        """Write a point and return its time; those of the scheduler's core have whole microseconds."""
        self.now_ns += self._tick()
        time_ns = self.now_ns // 1000 * 1000 if kind in NATIVE else self.now_ns
        own = self.points[actor]
        own.append(Point(time_ns, kind, request, step, value))
        own.sort(key=lambda point: point.time_ns)
        return time_ns

    def open(self, request: int, prompt_tokens: int = 100) -> None:
        """A request comes and is submitted."""
        for actor, kind in (
            ("engine", Kind.RECEIVED),
            ("engine", Kind.OPENED),
            ("tokenizer", Kind.TOKENIZE_BEGIN),
            ("tokenizer", Kind.ENCODE_BEGIN),
        ):
            self.note(actor, kind, request)
        self.note("tokenizer", Kind.TOKENIZED, request, value=prompt_tokens)
        self.note("scheduler", Kind.SUBMITTED, request, value=prompt_tokens)

    def plan(self, step: int, chunks: dict[int, int], rows: int) -> None:
        """The scheduler plans a step in a turn of its own."""
        self.note("scheduler", Kind.TURN_BEGIN)
        self.planned(step, chunks, rows)
        self.note("scheduler", Kind.TURN_END, value=1)

    def planned(self, step: int, chunks: dict[int, int], rows: int) -> None:
        """The scheduler plans a step; the executor queues it."""
        begin = self.note("scheduler", Kind.PLAN_BEGIN, 0, step)
        self.points["scheduler"] += [Point(begin, Kind.CHUNK, each, step, tokens) for each, tokens in chunks.items()]
        self.note("scheduler", Kind.PLANNED, 0, step, (rows << ROWS_SHIFT) + sum(chunks.values()))
        self.note("scheduler", Kind.PLAN_SENT, 0, step)

    def launch(self, step: int) -> None:
        """The executor takes the plan."""
        for kind in (Kind.PLAN_RECEIVED, Kind.LAUNCH_BEGIN, Kind.LAUNCHED):
            self.note("executor", kind, 0, step)

    def compute(self, step: int, *, ends: bool = True) -> None:
        """The device computes the step."""
        self.note("executor", Kind.COMPUTE_BEGIN, 0, step)
        for stage in (Stage.APPLY, Stage.FORWARD, Stage.LOGITS, Stage.SAMPLE):
            self.note("executor", Kind.STAGE, 0, step, stage)
        if ends:
            self.note("executor", Kind.COMPUTE_END, 0, step)

    def send(self, step: int) -> None:
        """The executor sends the result."""
        self.note("executor", Kind.IDS_DOWN, 0, step)
        self.note("executor", Kind.RESULT_SENT, 0, step)

    def apply(self, step: int, requests: list[int]) -> None:
        """The scheduler takes the result, inside a turn that the caller begins and ends."""
        self.note("scheduler", Kind.RESULT_RECEIVED, 0, step)
        for request in requests:
            self.note("scheduler", Kind.RESULT, request, step, 1)
        self.note("scheduler", Kind.APPLIED, 0, step)
        self.note("scheduler", Kind.BATCH_SENT, 0, step, len(requests))

    def deliver(self, step: int, request: int, ids: int, *, written: bool = True) -> None:
        """A token becomes text and is written."""
        self.note("detokenizer", Kind.TEXT, request, step, 4)
        self.note("engine", Kind.DELTA, request, value=ids)
        if written:
            self.note("engine", Kind.WRITTEN, request, value=20)

    def finish(self, request: int, how: Finish = Finish.LENGTH, *, written: bool = True) -> None:
        """The engine lets go of a request."""
        self.note("engine", Kind.FINISHED, request, value=how)
        if written:
            self.note("engine", Kind.WRITTEN, request, value=20)


def one_request(tokens: int = 3, *, overlap: bool = True) -> Tape:
    """Return the past of one request alone: its prompt in step 1, then a token a step."""
    tape = Tape()
    tape.open(1)
    tape.note("scheduler", Kind.TURN_BEGIN)
    tape.note("scheduler", Kind.ADMITTED, 1, value=16)
    tape.planned(1, {1: 84}, 1)
    if overlap and tokens > 1:
        tape.planned(2, {}, 1)
    tape.note("scheduler", Kind.TURN_END, value=1)
    tape.launch(1)
    if overlap and tokens > 1:
        tape.launch(2)
    for step in range(1, tokens + 1):
        tape.compute(step)
        tape.send(step)
        tape.note("scheduler", Kind.TURN_BEGIN)
        tape.apply(step, [1])
        following = step + (2 if overlap else 1)
        if following <= tokens:
            tape.planned(following, {}, 1)
        elif step == tokens:
            tape.note("scheduler", Kind.ENDED, 1, value=tokens)
        tape.note("scheduler", Kind.TURN_END, value=1)
        if following <= tokens:
            tape.launch(following)
        if step == tokens:
            tape.note("detokenizer", Kind.TEXT, 1, step, 4)
            tape.note("engine", Kind.FINISHED, 1, value=Finish.LENGTH)
            tape.note("engine", Kind.DELTA, 1, value=step)
            tape.note("engine", Kind.WRITTEN, 1, value=20)
        else:
            tape.deliver(step, 1, step)
    return tape


class Chaos:
    """A random past: requests come, wait, run, give up pages, are cancelled; the executor dies; points get lost."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self.tape = Tape(lambda: random.choice((300, 1000, 250_000)))
        self._next_request = self._next_step = 1
        self._waiting: list[int] = []
        self._running: dict[int, int] = {}  # ids so far
        self._flights: list[tuple[int, list[int]]] = []  # planned, not ended

    def run(self, actions: int) -> Points:
        """Let so many things happen."""
        moves = (self._come, self._step, self._step, self._result, self._result, self._retract, self._cancel)
        for _ in range(actions):
            self._random.choice((*moves, self._die))()
        return self.tape.points

    def lossy(self) -> Points:
        """Return the points without some of them, and without the oldest of some actor."""
        random, kept = self._random, {}
        for actor, points in self.tape.points.items():
            begin = random.choice((0, 0, random.randint(0, len(points))))
            kept[actor] = [point for point in points[begin:] if random.random() > 0.05]
        return kept

    def _come(self) -> None:
        request, self._next_request = self._next_request, self._next_request + 1
        self.tape.open(request)
        self._waiting.append(request)
        if self._random.random() < 0.5:
            self.tape.note("scheduler", Kind.WAITS, request, value=self._random.choice(list(Wait)))

    def _step(self) -> None:
        if len(self._flights) > 1:
            return
        chunks = {}
        while self._waiting and self._random.random() < 0.5:
            request = self._waiting.pop()
            self.tape.note("scheduler", Kind.ADMITTED, request, value=16)
            self._running.setdefault(request, 0)
            chunks[request] = 84
        rows = [request for request in self._running if request in chunks or self._random.random() < 0.8]
        if not rows:
            return
        step, self._next_step = self._next_step, self._next_step + 1
        self.tape.plan(step, chunks, len(rows))
        self.tape.launch(step)
        self._flights.append((step, rows))

    def _result(self) -> None:
        if not self._flights:
            return
        step, rows = self._flights.pop(0)
        self.tape.compute(step)
        self.tape.send(step)
        live = [request for request in rows if request in self._running]
        self.tape.note("scheduler", Kind.TURN_BEGIN)
        self.tape.apply(step, live)
        self.tape.note("scheduler", Kind.TURN_END, value=1)
        for request in live:
            self._running[request] += 1
            self.tape.deliver(step, request, self._running[request], written=self._random.random() < 0.8)
            if self._random.random() < 0.2:
                del self._running[request]
                self.tape.note("scheduler", Kind.ENDED, request, value=1)
                self.tape.finish(request, written=self._random.random() < 0.8)

    def _retract(self) -> None:
        if self._running:
            request = self._random.choice(list(self._running))
            self._give_back(request)

    def _give_back(self, request: int) -> None:
        del self._running[request]
        self.tape.note("scheduler", Kind.RETRACTED, request, value=100)
        self._waiting.append(request)

    def _cancel(self) -> None:
        known = [*self._waiting, *self._running]
        if known:
            request = self._random.choice(known)
            self._running.pop(request, None)
            self._waiting = [each for each in self._waiting if each != request]
            self.tape.finish(request, Finish.ABORT, written=False)
            self.tape.note("scheduler", Kind.CANCELLED, request)

    def _die(self) -> None:
        if self._flights:
            self.tape.compute(self._flights[0][0], ends=False)
        self._flights.clear()
        for request in list(self._running):
            self._give_back(request)
        self.tape.note("executor", Kind.STARTED)
