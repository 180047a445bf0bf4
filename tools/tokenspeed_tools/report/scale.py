"""Values to pixels, and the round values at which an axis has its ticks.

Linear or logarithmic. Knows no drawing. Invariant: every tick lies between the ends of its scale, ticks rise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)


def nice_step(span: float, count: int) -> float:
    """Return the smallest of 1, 2, 2.5, 5 times a power of ten that parts `span` into at most `count` pieces."""
    rough = span / max(1, count)
    power = 10.0 ** math.floor(math.log10(rough))
    return next(step * power for step in STEPS if step * power >= rough * (1 - 1e-9))


def linear_ticks(low: float, high: float, count: int) -> list[float]:
    """Return about `count` round values in [low, high]."""
    step = nice_step(high - low, count)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    # Twelve digits take away what the product adds to a round number.
    return [float(f"{step * index:.12g}") for index in range(first, last + 1)]


def log_ticks(low: float, high: float, count: int) -> list[float]:
    """Return round values in [low, high], as many of 1-2-5 or 1-3 per decade as `count` allows."""
    exponents = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 1)
    for mantissas in ((1, 2, 5), (1, 3), (1,)):
        ticks = [mantissa * 10.0**exponent for exponent in exponents for mantissa in mantissas]
        inside = [float(f"{tick:.12g}") for tick in ticks if low * (1 - 1e-9) <= tick <= high * (1 + 1e-9)]
        if 2 <= len(inside) <= count:
            return inside
    if len(inside) < 2:
        return linear_ticks(low, high, count)
    return inside[:: -(-len(inside) // max(1, count))]


@dataclass(frozen=True, slots=True)
class Scale:
    """Maps [low, high] onto pixels [start, end], which may fall (an upward axis).

    A logarithmic one needs low > 0. A value outside is clamped to the nearer end.
    """

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __post_init__(self) -> None:
        if not (self.low < self.high and (self.low > 0 or not self.log)):
            raise ValueError(f"scale: [{self.low}, {self.high}] is no range{' of a logarithm' if self.log else ''}")

    def __call__(self, value: float) -> float:
        """Return the pixel of a value."""
        low, high, at = self.low, self.high, min(max(value, self.low), self.high)
        if self.log:
            low, high, at = math.log(low), math.log(high), math.log(at)
        return self.start + (self.end - self.start) * (at - low) / (high - low)

    def ticks(self, count: int) -> list[float]:
        """Return about `count` round values inside."""
        return (log_ticks if self.log else linear_ticks)(self.low, self.high, count)


def room_above(values: Sequence[float], share: float = 0.08) -> float:
    """Return an upper end for an axis from zero: the largest value and some air; 1 when there is none."""
    return max(values, default=0.0) * (1 + share) or 1.0


def log_range(values: Sequence[float]) -> tuple[float, float]:
    """Return ends for a logarithmic axis that hold every positive value, with some air; a decade when none is."""
    positive = [value for value in values if value > 0]
    if not positive:
        return 1.0, 10.0
    low, high = min(positive), max(positive)
    air = max((high / low) ** 0.04, 1.05)
    return low / air, high * air
