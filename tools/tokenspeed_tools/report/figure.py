"""A plot of the page: a title, the drawing at two widths, and what the reader must know to read it.

Knows what a plot has, not what it shows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tokenspeed_tools.report.markup import Markup
from tokenspeed_tools.report.parts import Size

NARROW = 360.0


@dataclass(frozen=True, slots=True)
class Figure:
    """`name` is that of its file. `draw` takes a size, the style sheet of a file that stands alone (or ""), a class."""

    name: str
    title: str
    caption: str
    size: Size
    draw: Callable[[Size, str, str], Markup]
    full: bool = False

    @property
    def narrow(self) -> Size:
        """The size on a narrow screen."""
        return Size(NARROW, min(self.size.height, 330.0) if not self.full else self.size.height)
