"""Colours, dashes and marker shapes of runs, and the style sheet of a drawing.

Two runs differ in colour, in dash and in shape, so neither a colour-blind reader nor a black and white print mixes
them up. The colours of each theme keep their distance under red-green blindness and at least 3:1 to the paper
(WCAG 2.2, 1.4.11); the test measures both. Knows no run.
"""

from __future__ import annotations

from dataclasses import dataclass

from tokenspeed_tools.report.markup import Markup, element, number

LIGHT = ("#0072b2", "#d55e00", "#0f3805", "#804156", "#38279d")
DARK = ("#5ab4f0", "#f5893d", "#99f2e0", "#b8608e", "#fadf27")
DASHES = (None, "7 4", "2 3", "10 3 2 3")
PAPER, PAPER_DARK = "#ffffff", "#14171c"
# Text, lines of the axes and the grid.
INK, FAINT, GRID = "#1c2128", "#59636e", "#dde1e6"
INK_DARK, FAINT_DARK, GRID_DARK = "#e8ebef", "#a3adb8", "#333b45"
FONT = "system-ui, -apple-system, 'Segoe UI', 'Liberation Sans', Arial, sans-serif"
# Outlines of markers, as multiples of the radius.
OUTLINES = {
    "square": ((-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)),
    "triangle": ((0, -1.2), (1.1, 0.8), (-1.1, 0.8)),
    "diamond": ((0, -1.25), (1.25, 0), (0, 1.25), (-1.25, 0)),
    "wedge": ((0, 1.2), (1.1, -0.8), (-1.1, -0.8)),
    "bar": ((-0.45, -1.25), (0.45, -1.25), (0.45, 1.25), (-0.45, 1.25)),
}
SHAPES = ("circle", *OUTLINES)


@dataclass(frozen=True, slots=True)
class Style:
    """How the run (or engine) with this number is drawn, everywhere on the page."""

    index: int

    @property
    def colour(self) -> str:
        """The class that sets the colour."""
        return f"c{self.index % len(LIGHT)}"

    @property
    def dash(self) -> str | None:
        """The pattern of its lines."""
        return DASHES[self.index % len(DASHES)]

    def marker(self, x: float, y: float, radius: float = 4.5, hollow: bool = False) -> Markup:
        """Return its marker at a pixel."""
        look = f"{self.colour} {'hollow' if hollow else 'solid'}"
        shape = SHAPES[self.index % len(SHAPES)]
        if shape == "circle":
            return element("circle", cx=x, cy=y, r=radius, class_=look)
        corners = [f"{number(x + radius * across)} {number(y + radius * down)}" for across, down in OUTLINES[shape]]
        return element("path", d=f"M{'L'.join(corners)}Z", class_=look)


def theme(colours: tuple[str, ...], paper: str, ink: str, faint: str, grid: str) -> str:
    """Return the rules of one theme for drawings."""
    rules = [f".c{index}{{color:{colour}}}" for index, colour in enumerate(colours)]
    return "".join(rules) + (
        f".chart text{{fill:{ink}}}.chart .soft{{fill:{faint}}}.chart .grid{{stroke:{grid}}}"
        f".chart .axis,.chart .leader{{stroke:{faint}}}.chart .paper,.chart .hollow{{fill:{paper}}}"
    )


def stylesheet() -> str:
    """Return the rules of a drawing: light, and dark where the reader's screen is; paper is always light."""
    return (
        f".chart{{font:12px {FONT}}}"
        ".chart .line,.chart .grid,.chart .axis,.chart .leader{fill:none}"
        ".chart .line{stroke:currentColor;stroke-width:2;stroke-linejoin:round}"
        ".chart .area{fill:currentColor;opacity:.16}.chart .wait{fill:currentColor;opacity:.38}"
        ".chart .solid,.chart .run{fill:currentColor}.chart .hollow{stroke:currentColor;stroke-width:1.8}"
        ".chart .stall{fill:none;stroke:currentColor;stroke-width:1}"
        + theme(LIGHT, PAPER, INK, FAINT, GRID)
        + f"@media screen and (prefers-color-scheme:dark){{{theme(DARK, PAPER_DARK, INK_DARK, FAINT_DARK, GRID_DARK)}}}"
    )
