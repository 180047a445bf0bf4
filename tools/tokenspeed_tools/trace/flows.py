"""Arrows from a request to its steps and on to the tokens that they brought.

Owns their numbers. It does not know where they are drawn: at a part of the request's life, at the step that
computed it, and at the token that left a door.

Invariant: a number is given only for a pair that is drawn at the step and on the request's track.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tokenspeed_tools.trace.life import Life
from tokenspeed_tools.trace.parts import parts_of
from tokenspeed_tools.trace.steps import Step
from tokenspeed_tools.trace.tokens import tokens_of

Flows = Mapping[tuple[int, int], int]
"""The number of the arrow of a (request, step)."""


def flows_of(steps: Sequence[Step], lives: Sequence[Life], numbers: Iterator[int]) -> Flows:
    """Return an arrow for each request and step that belong together and were both recorded."""
    drawn = {step.number: step for step in steps if parts_of(step)}
    flows: dict[tuple[int, int], int] = {}
    for life in lives:
        for number in _steps_told(life):
            step = drawn.get(number)
            if step is not None and (life.request in step.chunks or life.request in step.results):
                flows[life.request, number] = next(numbers)
    return flows


def flow(flows: Flows, request: int, step: int) -> tuple[int, ...]:
    """Return the arrow of the pair, () if it has none."""
    found = flows.get((request, step))
    return () if found is None else (found,)


def _steps_told(life: Life) -> Iterator[int]:
    """Yield, once each, the steps that the request's own track names."""
    computed = [part.step.number for part in life.parts if part.step is not None]
    yield from dict.fromkeys([*computed, *(token.step for token in tokens_of(life.points))])
