"""A drawing with two axes, a legend and marks, as plain SVG.

Owns the layout: what room ticks, titles and legend need, and where the field for the marks is. It takes values, not
runs. All text has one size, so that nothing is drawn too small to read; what does not fit is cut with an ellipsis
and stands whole in a tooltip. Invariant: no text leaves the drawing, and no two texts overlap.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from tokenspeed_tools.report.markup import Markup, element, joined, number
from tokenspeed_tools.report.measure import fitted, text_width
from tokenspeed_tools.report.palette import Style
from tokenspeed_tools.report.parts import Axis, Key, Point, Size, along, path
from tokenspeed_tools.report.place import Box, Label, Placed, place

TEXT = 12.0
LINE, SWATCH, MARK = 19.0, 30.0, 6.0


class Chart:
    """One drawing. Made with its axes; then marks, then `svg`."""

    def __init__(self, size: Size, x: Axis, y: Axis, keys: Sequence[Key] = (), right: float = 0) -> None:
        """Lay the drawing out; `right` pixels beside the field stay free for labels."""
        self.size = size
        self._parts: list[Markup] = []
        self._labels: list[Label] = []
        self._taken: list[Box] = []
        legend = self._legend(keys)
        self.height = size.height + legend
        top, bottom = legend + 26, self.height - 40
        rows = y.at or y.scale(bottom, top).ticks(max(3, int(size.height // 56)))
        widest = max(text_width(y.write(tick), TEXT) for tick in rows)
        left = max(widest + 10, 24)
        self.field = Box(left, top, size.width - max(right, 18), bottom)
        self.x, self.y = x.scale(left, self.field.right), y.scale(bottom, top)
        self._across(y, rows)
        self._along(x)

    def line(self, points: Sequence[Point], style: Style, step: bool = False, avoided: bool = False) -> None:
        """Draw a line; as steps, each value holds until the next. Labels keep off what is `avoided`."""
        pixels = [(self.x(x), self.y(y)) for x, y in points]
        if step:
            pixels = [
                pixel
                for before, now in zip([pixels[0], *pixels], pixels, strict=False)
                for pixel in ((now[0], before[1]), now)
            ]
        if avoided:
            self._taken.extend(along(pixels))
        self._parts.append(element("path", d=path(pixels), class_=f"{style.colour} line", stroke_dasharray=style.dash))

    def band(self, low: Sequence[Point], high: Sequence[Point], style: Style) -> None:
        """Fill between two lines."""
        outline = [(self.x(x), self.y(y)) for x, y in [*low, *reversed(high)]]
        self._parts.append(element("path", d=path(outline) + "Z", class_=f"{style.colour} area"))

    def marker(self, at: Point, style: Style, title: str, hollow: bool = False, label: str = "") -> None:
        """Draw a marker that says `title` when pointed at, and write `label` beside it where there is room."""
        x, y = self.x(at[0]), self.y(at[1])
        self._parts.append(element("g", element("title", title), style.marker(x, y, hollow=hollow)))
        self._taken.append(Box(x - MARK, y - MARK, x + MARK, y + MARK))
        if label:
            self._labels.append(Label(x, y, label, style.colour))

    def rule(self, x: float | None = None, y: float | None = None) -> None:
        """Draw a faint line across the field, at a value of either axis; labels keep off it."""
        left, top, right, bottom = self.field
        if x is not None:
            left = right = self.x(x)
        if y is not None:
            top = bottom = self.y(y)
        self._taken.extend(along([(left, top), (right, bottom)]))
        self._parts.append(element("line", x1=left, y1=top, x2=right, y2=bottom, class_="axis", stroke_dasharray="1 3"))

    def add(self, part: Markup) -> None:
        """Add a drawing made elsewhere, in pixels."""
        self._parts.append(part)

    def svg(self, described: str, style: str, kind: str) -> Markup:
        """Return the drawing; `described` is read out instead of it.

        `style` is the style sheet of a file that stands alone, else ""; `kind` a class for the page.
        """
        labels = place(self._labels, self._taken, self._room(), TEXT)
        width, height = number(self.size.width), number(self.height)
        return element(
            "svg",
            element("style", Markup(style)) if style else "",
            element("rect", width=width, height=height, class_="paper"),
            *self._parts,
            *map(self._written, labels),
            xmlns="http://www.w3.org/2000/svg",
            viewBox=f"0 0 {width} {height}",
            width=width,
            height=height,
            class_=f"chart {kind}",
            role="img",
            aria_label=described,
        )

    def _room(self) -> Box:
        """Return where labels may stand: over the field and in what is free at its right."""
        return Box(self.field.left + 2, self.field.top - 4, self.size.width - 2, self.field.bottom - 2)

    def _text(self, x: float, y: float, said: str, anchor: str = "start", soft: bool = True) -> None:
        anchored = None if anchor == "start" else anchor
        self._parts.append(element("text", said, x=x, y=y, text_anchor=anchored, class_="soft" if soft else None))

    def _legend(self, keys: Sequence[Key]) -> float:
        """Write the legend from the top, as many in a row as fit; return its height."""
        x, y, room = 2.0, 0.0, self.size.width - 4
        for key in keys:
            text = fitted(key.text, TEXT, room - SWATCH)
            width = SWATCH + text_width(text, TEXT)
            if x > 2 and x + width > room:
                x, y = 2.0, y + LINE
            self._swatch(key, text, x, y + LINE / 2)
            x += width + 14
        return y + LINE + 6 if keys else 0.0

    def _swatch(self, key: Key, text: str, x: float, y: float) -> None:
        middle = x + SWATCH / 2 - 4
        drawn = (
            key.style.marker(middle, y)
            if key.marker
            else element(
                "line",
                x1=x,
                y1=y,
                x2=x + SWATCH - 8,
                y2=y,
                class_=f"{key.style.colour} line",
                stroke_dasharray=key.style.dash,
            )
        )
        words = element("text", text, x=x + SWATCH - 2, y=y + 4)
        self._parts.append(element("g", element("title", key.text), drawn, words))

    def _across(self, axis: Axis, ticks: Sequence[float]) -> None:
        """Draw the grid, the numbers at the left and the title above them."""
        left, top, right, _ = self.field
        for tick in ticks:
            at = self.y(tick)
            self._parts.append(element("line", x1=left, y1=at, x2=right, y2=at, class_="grid"))
            self._text(left - 6, at + 4, axis.write(tick), "end")
        self._text(2, top - 11, fitted(axis.title, TEXT, self.size.width - 4), soft=False)

    def _along(self, axis: Axis) -> None:
        """Draw the axis below the field, its numbers and its title."""
        left, _, right, bottom = self.field
        for tick in self._x_ticks(axis):
            at = self.x(tick)
            self._parts.append(element("line", x1=at, y1=bottom, x2=at, y2=bottom + 4, class_="axis"))
            self._text(at, bottom + 17, axis.write(tick), "middle")
        self._parts.append(element("line", x1=left, y1=bottom, x2=right, y2=bottom, class_="axis"))
        self._text(right, bottom + 35, fitted(axis.title, TEXT, right - 4), "end", soft=False)

    def _x_ticks(self, axis: Axis) -> list[float]:
        """Return as many ticks as have room for their labels."""
        for count in range(max(2, int((self.field.right - self.field.left) // 48)), 0, -1):
            ticks = [tick for tick in self.x.ticks(count) if not axis.whole or tick == int(tick)]
            ends = [(self.x(tick), text_width(axis.write(tick), TEXT) / 2) for tick in ticks]
            apart = all(b - a > half + other + 6 for (a, half), (b, other) in pairwise(ends))
            inside = all(at - half >= 0 and at + half <= self.size.width for at, half in ends)
            if apart and inside:
                return ticks
        return ticks[:1]

    def _written(self, placed: Placed) -> Markup:
        label, box = placed.label, placed.box
        words = element("text", label.text, x=box.left, y=box.bottom - 3.0)
        if not placed.far:
            return words
        x = min(max(label.x, box.left), box.right)
        y = box.bottom if box.bottom < label.y else min(max(label.y, box.top), box.bottom)
        return joined(element("line", x1=label.x, y1=label.y, x2=x, y2=y, class_="leader"), words)
