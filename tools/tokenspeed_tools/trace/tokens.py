"""The pieces of an answer as they left a door, with the step that brought them.

Owns the pairing of what was written with what was delivered: an output without text (half a character,
text that may become a stop string) is delivered and not written on its own.

Invariant: there is one token for each WRITTEN point, and ids are counted once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from tokenspeed.points import Kind, Point


class Token(NamedTuple):
    """A piece of the answer: when it left, the step of its last id (0: unknown), how many ids and bytes it has."""

    time_ns: int
    step: int
    ids: int
    bytes: int


def tokens_of(points: Sequence[Point]) -> Iterator[Token]:
    """Yield the pieces that `points`, all of one request and in the order of time, tell of."""
    ids = _Ids(points)
    counted = ids.before
    deltas: list[int] = []
    written: list[Point] = []
    for point in points:
        if point.kind is Kind.WRITTEN:
            written.append(point)
        elif point.kind is Kind.DELTA:
            if written:
                yield from ids.tokens(written, deltas, counted)
                counted, written, deltas = max(deltas, default=counted), [], []
            deltas.append(point.value)
    yield from ids.tokens(written, deltas, counted)


class _Ids:
    """With which step each id of a request came. `before` of them came before its first point."""

    def __init__(self, points: Sequence[Point]) -> None:
        results = [point for point in points if point.kind is Kind.RESULT]
        deltas = [point for point in points if point.kind is Kind.DELTA]
        self._steps = list(chain.from_iterable([point.step] * point.value for point in results))
        self.before = 0
        if deltas and not any(point.kind is Kind.OPENED for point in points):
            # They begin in its middle. The first piece that the engine got was of the text before it.
            texts = [point.step for point in points if point.kind is Kind.TEXT and point.time_ns <= deltas[0].time_ns]
            seen = sum(point.value for point in results if texts and point.step <= texts[-1])
            self.before = max(0, deltas[0].value - (seen or 1))

    def tokens(self, written: Sequence[Point], deltas: Sequence[int], counted: int) -> Iterator[Token]:
        """Yield a token for each of `written`, the last of which brought the last of `deltas` (ids delivered then)."""
        told = [counted] * len(written) + list(deltas)
        for point, delivered in zip(written, told[len(told) - len(written) :], strict=True):
            yield Token(point.time_ns, self._step(delivered), delivered - counted, point.value)
            counted = delivered

    def _step(self, ids: int) -> int:
        index = ids - self.before - 1
        return self._steps[index] if 0 <= index < len(self._steps) else 0
