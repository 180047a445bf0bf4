"""What a drawing is described with: its size, its axes, the entries of its legend; and lines as pixels.

Values and pixels only; `chart` lays them out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from tokenspeed_tools.report.markup import number
from tokenspeed_tools.report.measure import short
from tokenspeed_tools.report.palette import Style
from tokenspeed_tools.report.place import Box
from tokenspeed_tools.report.scale import Scale

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Size:
    """Pixels of a drawing without its legend."""

    width: float
    height: float

    @property
    def small(self) -> bool:
        """Whether it is for a narrow screen."""
        return self.width < 500


@dataclass(frozen=True, slots=True)
class Axis:
    """Ends of an axis and how it is written: `title` with the unit, `write` for a tick; `at` are its ticks if given."""

    title: str
    low: float
    high: float
    log: bool = False
    write: Callable[[float], str] = short
    whole: bool = False
    at: tuple[float, ...] = ()

    def scale(self, start: float, end: float) -> Scale:
        """Return the scale onto these pixels."""
        return Scale(self.low, self.high, start, end, self.log)


@dataclass(frozen=True, slots=True)
class Key:
    """One entry of the legend."""

    text: str
    style: Style
    marker: bool = False


def path(points: Iterable[Point]) -> str:
    """Return the `d` of a line through pixels; points nearer than a third of a pixel to the last are left out."""
    said, last = [], None
    for x, y in points:
        if last is None or abs(x - last[0]) + abs(y - last[1]) > 1 / 3:
            said.append(f"{number(round(x, 1))} {number(round(y, 1))}")
            last = (x, y)
    return "M" + "L".join(said)


def along(pixels: Sequence[Point]) -> Iterator[Box]:
    """Yield boxes that cover a line, one every few pixels."""
    for (x0, y0), (x1, y1) in pairwise(pixels):
        pieces = max(1, int(max(abs(x1 - x0), abs(y1 - y0)) / 4))
        for piece in range(pieces + 1):
            x, y = x0 + (x1 - x0) * piece / pieces, y0 + (y1 - y0) * piece / pieces
            yield Box(x - 1, y - 2, x + 1, y + 2)
