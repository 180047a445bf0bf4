"""A request's life in words: what happened when, for how long, and why it waited.

Owns the grouping of parts into entries and the sentences. It does not know where the points come from.
Steps that decode are told together, but for the slow ones; so are many parts of a long prompt.

Invariant: the entries at the top level follow each other and fill the life exactly.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from statistics import median
from typing import NamedTuple

from tokenspeed.points import Kind, Wait
from tokenspeed_tools.trace.life import Doing, Life, LifePart
from tokenspeed_tools.trace.past import Past
from tokenspeed_tools.trace.reasons import Usual, reasons
from tokenspeed_tools.trace.steps import Span
from tokenspeed_tools.trace.words import MS, counted, duration, listed, prompt_tokens

SLOW_TIMES = 1.5  # longer than so many medians
SLOW_TOLD = 5
CHUNKS_TOLD = 6
CLIENT_NS = 50 * MS  # a write that takes longer waits for the client
GAP_SHARE = 0.05  # of the chunk before: a gap that is shorter is told with it
GAP_NS = 1 * MS  # between two steps: less is the engine's own work
WAITING = {
    Doing.ENCODE_WAIT: "for a thread of the tokenizer",
    Doing.ADMISSION: "for admission",
    Doing.ADMITTED: "for its first step",
    Doing.RETRACTED: "without pages",
}
IN_PROMPT = (Doing.PROMPT, Doing.PROMPT_GAP)
IN_DECODE = (Doing.DECODE, Doing.DECODE_GAP)


class Entry(NamedTuple):
    """A line of the story. `cause` is why the request waited, "" where it did not; `notes` are told below it."""

    begin_ns: int
    ns: int
    text: str
    cause: str = ""
    notes: tuple[str, ...] = ()


class Story:
    """One life told with what else went on."""

    def __init__(self, past: Past, life: Life) -> None:
        self._past = past
        self._life = life
        self._decode_ns = _median(life.of(Doing.DECODE))

    def entries(self) -> list[Entry]:
        """Return the life's entries in the order of time."""
        return [entry for group in _groups(self._life.parts) for entry in self._told(group)]

    def waits(self) -> list[tuple[int, str]]:
        """Return how long the request waited in all for each cause, in ns, the longest first."""
        sums: dict[str, int] = {}
        for entry in self.entries():
            if entry.cause:
                sums[entry.cause] = sums.get(entry.cause, 0) + entry.ns
        for part in self._life.of(*IN_DECODE):
            if cause := self._slowed(part):
                usual = round(self._decode_ns) if part.doing is Doing.DECODE else 0
                sums[cause] = sums.get(cause, 0) + part.ns - usual
        if client := sum(self._client_waits()):
            sums["for the client, which read slowly"] = client
        return sorted(((ns, cause) for cause, ns in sums.items()), reverse=True)

    def _told(self, parts: Sequence[LifePart]) -> Iterator[Entry]:
        match parts[0].doing:
            case Doing.PROMPT | Doing.PROMPT_GAP:
                yield from self._prompt(parts)
            case Doing.DECODE | Doing.DECODE_GAP:
                yield self._decode(parts)
            case _:
                yield from map(self._other, parts)

    def _other(self, part: LifePart) -> Entry:
        cause, detail = self._why(part)
        why = "; ".join(filter(None, (cause, detail)))
        text = f"{part.doing}: {why}" if why else str(part.doing)
        waits = WAITING.get(part.doing)
        return Entry(part.begin_ns, part.ns, text, ": ".join(filter(None, (waits, cause))) if waits else "")

    def _why(self, part: LifePart) -> tuple[str, str]:
        """Return the cause for which it waited, and what more is to be said."""
        match part.doing:
            case Doing.ADMISSION:
                return self._admission(part), self._meanwhile(part)
            case Doing.ADMITTED:
                cached = self._life.value(Kind.ADMITTED, part)
                found = f"{counted(cached, 'token')} of the prompt found in the cache" if cached else ""
                return self._behind(part), found
            case Doing.RETRACTED:
                return self._retracted(part)
            case Doing.ENCODE if self._life.prompt_tokens:
                return "", counted(self._life.prompt_tokens, "token")
            case Doing.DELIVERY if part.ns > CLIENT_NS and self._past.engine_points(_span(part)):
                return "", "the client read slowly"
            case _:
                return "", ""

    def _admission(self, part: LifePart) -> str:
        running = counted(self._past.running(part.begin_ns), "request")
        match part.wait:
            case Wait.SLOTS:
                return f"every slot was taken, {running} ran"
            case Wait.PAGES:
                return f"too few pages were free beside the {running} that ran"
            case Wait.PREFIX:
                return "another request was computing what it begins with"
            case Wait.RETRACTED:
                return "a request that had given its pages up went first"
            case Wait.TURN:
                return "the prompt tokens of the steps went to others"
        return "the next step is planned when one has ended" if self._past.steps_in(_span(part)) else ""

    def _meanwhile(self, part: LifePart) -> str:
        tokens = self._past.prompt_tokens(_span(part), but=self._life.request)
        return f"meanwhile {prompt_tokens(tokens)} were computed" if tokens else ""

    def _behind(self, part: LifePart) -> str:
        """Tell of the steps that the device had to end first."""
        steps = self._past.steps_in(Span(part.begin_ns, part.end_ns + 1))
        if not steps:
            return ""
        tokens = self._past.prompt_tokens(Span(part.begin_ns, part.end_ns + 1))
        had = f"had {prompt_tokens(tokens)}" if tokens else "decoded"
        return f"behind step {steps[-1].number}, which {had}"

    def _retracted(self, part: LifePart) -> tuple[str, str]:
        again = f"{counted(self._life.value(Kind.RETRACTED, part), 'token')} to be computed again"
        restarted = [actor for time_ns, actor in self._past.starts if part.begin_ns <= time_ns <= part.end_ns]
        if "executor" in restarted:
            return "the executor died and was started again", again
        return "others that ran needed its pages", again

    def _prompt(self, parts: Sequence[LifePart]) -> Iterator[Entry]:
        """Tell the parts of a prompt, those in the middle of many together."""
        chunks = [part for part in parts if part.doing is Doing.PROMPT]
        if len(chunks) <= CHUNKS_TOLD:
            yield from self._each_chunk(parts)
            return
        cut, end = parts.index(chunks[2]), parts.index(chunks[-2])
        yield from self._each_chunk(parts[:cut])
        yield self._chunks(parts[cut:end])
        yield from self._each_chunk(parts[end:])

    def _each_chunk(self, parts: Sequence[LifePart]) -> Iterator[Entry]:
        """Tell parts one by one, a short gap together with what was before it."""
        told: Entry | None = None
        for part in parts:
            if told and part.step is None and part.ns < GAP_SHARE * told.ns and not self._past.steps_in(_span(part)):
                told = told._replace(ns=told.ns + part.ns)
                continue
            if told:
                yield told
            told = self._chunk(part)
        if told:
            yield told

    def _chunk(self, part: LifePart) -> Entry:
        if part.step is None:
            others = self._past.prompt_tokens(_span(part), but=self._life.request)
            why = f"{prompt_tokens(others)} had the step" if others else ""
            text = f"{part.doing}: {why}" if why else f"{part.doing}: the engine's own work"
            return Entry(part.begin_ns, part.ns, text, f"between parts of the prompt: {why}" if why else "")
        tokens = part.step.chunks[self._life.request]
        others = {request: count for request, count in part.step.chunks.items() if request != self._life.request}
        text = f"{counted(tokens, 'token')} of the prompt computed in step {part.step.number}"
        beside = [prompt_tokens(others)] if others else []
        if decoding := part.step.rows - len(part.step.chunks):
            beside.append(counted(decoding, "row that decodes", "rows that decode"))
        if beside:
            text += f", beside {listed(beside)}"
        if part.step.results.get(self._life.request):
            text += f"; {'first' if self._is_first(part) else 'next'} token"
        return Entry(part.begin_ns, part.ns, text)

    def _chunks(self, parts: Sequence[LifePart]) -> Entry:
        """Tell several parts of a prompt, gaps between them included, in one entry."""
        steps = [part.step for part in parts if part.step is not None]
        tokens = sum(step.chunks[self._life.request] for step in steps)
        gaps = sum(part.ns for part in parts if part.step is None)
        text = f"{counted(tokens, 'token')} of the prompt computed in {counted(len(steps), 'step')}"
        begin, end = parts[0].begin_ns, parts[-1].end_ns
        return Entry(begin, end - begin, f"{text}, {duration(gaps)} of it between them")

    def _decode(self, parts: Sequence[LifePart]) -> Entry:
        computed = [part for part in parts if part.doing is Doing.DECODE]
        tokens = sum(part.step.results.get(self._life.request, 0) for part in computed if part.step)
        begin, end = parts[0].begin_ns, parts[-1].end_ns
        text = f"{counted(tokens, 'token')} computed in {counted(len(computed), 'step')}"
        if computed:
            gaps = sum(part.ns for part in parts if part.doing is Doing.DECODE_GAP)
            text += f", median {duration(_median(computed))}; {duration(gaps)} of it between steps"
        slow = [part for part in parts if self._is_slow(part)]
        slow.sort(key=lambda part: -part.ns)
        notes = [self._slow(part) for part in sorted(slow[:SLOW_TOLD])]
        if len(slow) > SLOW_TOLD:
            notes.append(f"{counted(len(slow) - SLOW_TOLD, 'more slow step')}, each shorter")
        return Entry(begin, end - begin, text, notes=tuple(notes))

    def _is_slow(self, part: LifePart) -> bool:
        if part.doing is Doing.DECODE_GAP:
            return part.ns > max(GAP_NS, SLOW_TIMES * self._decode_ns)
        return part.ns > SLOW_TIMES * self._decode_ns

    def _slow(self, part: LifePart) -> str:
        """Tell one slow step, or one long gap."""
        at = f"at {duration(part.begin_ns - self._life.begin_ns)}: {duration(part.ns)}"
        if part.step is None:
            return f"{at} between two of its steps: {self._absent(part)}"
        excess = part.ns - self._decode_ns
        why = reasons(self._past, part.step, _span(part), excess, Usual(), but=self._life.request)
        return f"{at} in step {part.step.number}: {why}"

    def _absent(self, part: LifePart) -> str:
        steps = self._past.steps_in(_span(part))
        if not steps:
            return "no step was computed"
        return f"{counted(len(steps), 'step')} of others, without a row of it"

    def _slowed(self, part: LifePart) -> str:
        """Return the cause for which a part of decoding made the request wait, "" if it did not."""
        if not self._is_slow(part):
            return ""
        if part.step is None:
            return "between tokens: not in the steps that were computed"
        others = [request for request in part.step.chunks if request != self._life.request]
        if others:
            return "in steps that computed prompts of others as well"
        return "in slow steps"

    def _is_first(self, part: LifePart) -> bool:
        results = self._life.times(Kind.RESULT)
        return bool(results) and part.end_ns <= results[0] + MS

    def _client_waits(self) -> Iterator[int]:
        """Yield how long each write waited for the client, where that was long and the engine's loop went on."""
        if self._life.sent_whole:
            return
        waiting: int | None = None
        for point in self._life.points:
            if point.kind is Kind.DELTA and waiting is None:
                waiting = point.time_ns
            elif point.kind is Kind.WRITTEN and waiting is not None:
                span, waiting = Span(waiting, point.time_ns), None
                if span.end_ns - span.begin_ns > CLIENT_NS and self._past.engine_points(span):
                    yield span.end_ns - span.begin_ns


def _groups(parts: Sequence[LifePart]) -> Iterator[list[LifePart]]:
    """Yield the parts of a prompt, or of decoding, that follow each other together."""
    for _, group in groupby(parts, key=_phase):
        yield list(group)


def _phase(part: LifePart) -> str:
    return "prompt" if part.doing in IN_PROMPT else "decode" if part.doing in IN_DECODE else str(part.doing)


def _median(parts: Sequence[LifePart]) -> float:
    return median(part.ns for part in parts) if parts else 0.0


def _span(part: LifePart) -> Span:
    return Span(part.begin_ns, part.end_ns)
