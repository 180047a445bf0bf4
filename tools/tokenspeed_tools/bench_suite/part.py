"""What a part of the suite is, and what it gives.

Owns the form alone: how a part is prepared, and for each figure its unit, which way is better, and
the anchor that it goes with. It knows no part, no file and no anchor's speed.

Invariant: every figure is above 0, so that two runs have a ratio.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Literal, NamedTuple

Values = Mapping[str, float]
Sizes = Mapping[str, int]
#: Takes the number of the round, from 0, and measures once.
Measure = Callable[[int], Values]

Anchor = Literal["hash", "objects", "copy", "gemm", "work", "wake", "none"]


class Kind(NamedTuple):
    """What a figure is. It goes with the machine's speed at `anchor`; "none" for a ratio inside one round."""

    unit: str
    better: Literal["lower", "higher"]
    anchor: Anchor


def time_of(unit: str, anchor: Anchor = "objects") -> Kind:
    """Return the kind of a duration."""
    return Kind(unit, "lower", anchor)


def rate_of(unit: str, anchor: Anchor) -> Kind:
    """Return the kind of a rate."""
    return Kind(unit, "higher", anchor)


class Part(NamedTuple):
    """One part. `sizes` say how much is measured: lines of other sizes are not compared.

    `prepare` makes everything ready, outside of what is timed, and yields the function that runs a
    round and returns all `figures`. `about_s` is what it takes on two idle cores.
    """

    name: str
    shows: str
    about_s: int
    rounds: int
    sizes: Sizes
    figures: Mapping[str, Kind]
    prepare: Callable[[Sizes], AbstractContextManager[Measure]]
