"""Finds room for labels beside their points.

A label is tried on every side of its point, near first; one that finds no room is left out, and the point's
tooltip and the tables still say it. Knows no chart. Invariant: no placed box touches another or leaves the field.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tokenspeed_tools.report.measure import text_width

HEIGHT, DESCENT, GAP = 13.0, 3.0, 2.0
# Sides of a point in the order of preference: right, left, above, below, and the corners.
SIDES = ((1, 0), (-1, 0), (0, -1), (0, 1), (1, -1), (-1, -1), (1, 1), (-1, 1))
NEAR, FAR = 8.0, (8.0, 20.0, 34.0, 50.0)


class Box(NamedTuple):
    """A rectangle in pixels."""

    left: float
    top: float
    right: float
    bottom: float

    def touches(self, other: Box) -> bool:
        """Return whether the two overlap or nearly do."""
        across = self.left < other.right + GAP and other.left < self.right + GAP
        return across and self.top < other.bottom and other.top < self.bottom

    def inside(self, other: Box) -> bool:
        """Return whether it lies wholly in the other."""
        return (
            self.left >= other.left
            and self.top >= other.top
            and self.right <= other.right
            and self.bottom <= other.bottom
        )


class Label(NamedTuple):
    """A text that belongs at the point (x, y); a size in pixels; `colour` is a class of the palette."""

    x: float
    y: float
    text: str
    colour: str = ""


class Placed(NamedTuple):
    """Where the label stands; `far` when a line should lead from it to its point."""

    label: Label
    box: Box
    far: bool


def boxes(label: Label, size: float) -> Iterator[Placed]:
    """Yield the places that a label may have, best first."""
    width = text_width(label.text, size)
    for distance in FAR:
        for across, down in SIDES:
            shift = distance if not (across and down) else distance * 0.75
            middle_x = label.x + across * (shift + width / 2)
            middle_y = label.y + down * (shift + HEIGHT / 2)
            box = Box(middle_x - width / 2, middle_y - HEIGHT / 2, middle_x + width / 2, middle_y + HEIGHT / 2)
            yield Placed(label, box, far=distance > NEAR)


def place(labels: Sequence[Label], taken: Sequence[Box], field: Box, size: float) -> list[Placed]:
    """Return the labels that found room among what is taken; the first have the first choice."""
    full, found = list(taken), []
    for label in labels:
        for candidate in boxes(label, size):
            if candidate.box.inside(field) and not any(candidate.box.touches(other) for other in full):
                full.append(candidate.box)
                found.append(candidate)
                break
    return found
