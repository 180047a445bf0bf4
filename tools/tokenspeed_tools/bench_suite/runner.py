"""Runs one part: rounds, and the machine's speed around each.

Owns the order of measuring and the check of what a part gives. It knows no file.

Invariant: a round's speed is the mean of those measured just before and just after it.
"""

from __future__ import annotations

import contextlib
import math
import multiprocessing
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from itertools import pairwise
from typing import NamedTuple

from tokenspeed_tools.bench_suite.anchors import Anchors, Speeds
from tokenspeed_tools.bench_suite.line import Figure, rounded, spread_percent
from tokenspeed_tools.bench_suite.part import Kind, Part, Values

ROUNDS_MIN = 3
PATIENCE = 2


class PartError(Exception):
    """A part gave something else than its figures."""


class Measured(NamedTuple):
    """What a part gave: a value for each round, in both."""

    seconds: float
    anchors: dict[str, list[float]]
    figures: dict[str, Figure]


def measured_alone(name: str, rounds: int) -> Measured:
    """Run `rounds` of the part `name` in a process of its own: no other part's memory and threads are there."""
    fresh = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=fresh) as process:
        return process.submit(_measured, name, rounds).result()


def _measured(name: str, rounds: int) -> Measured:
    from tokenspeed_tools.bench_suite.registry import chosen

    (part,) = chosen(name)
    with contextlib.closing(Anchors()) as anchors:
        return run(part, rounds, anchors.measure)


def run(part: Part, rounds: int, speeds_now: Callable[[], Speeds]) -> Measured:
    """Run `rounds` of `part`.

    On a machine that others keep busy there are fewer of them: behind `ROUNDS_MIN` none begins once
    the part has taken `PATIENCE` times as long as it should.
    """
    begin = time.monotonic()
    found: list[Values] = []
    with part.prepare(part.sizes) as measure:
        speeds = [speeds_now()]
        for number in range(rounds):
            if number >= ROUNDS_MIN and time.monotonic() - begin > PATIENCE * part.about_s:
                break
            found.append(_checked(part, measure(number)))
            speeds.append(speeds_now())
    around = list(pairwise(speeds))
    return Measured(
        round(time.monotonic() - begin, 1),
        {name: [rounded((before[name] + after[name]) / 2) for before, after in around] for name in speeds[0]},
        {name: _figure(kind, [values[name] for values in found]) for name, kind in part.figures.items()},
    )


def _checked(part: Part, values: Values) -> Values:
    if values.keys() != part.figures.keys():
        raise PartError(f"it gave {sorted(values.keys() ^ part.figures.keys())} too many or too few")
    for name, value in values.items():
        if not (math.isfinite(value) and value > 0):
            raise PartError(f"{name} is {value}; a number above 0 is needed")
    return values


def _figure(kind: Kind, values: list[float]) -> Figure:
    return Figure(
        **kind._asdict(),
        median=rounded(statistics.median(values)),
        spread_percent=round(spread_percent(values), 1),
        values=[rounded(value) for value in values],
    )
