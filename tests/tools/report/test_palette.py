"""Every reader can tell the colours from the paper and from one another."""

from __future__ import annotations

import math
from itertools import combinations

import pytest
from tokenspeed_tools.report import palette, style

# Severe red and green blindness in linear RGB (Machado, Oliveira and Fernandes 2009, table 1).
PROTAN = ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998))
DEUTAN = ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881))
ALL = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))
# Ottosson's Oklab: linear RGB to cones, cones to lightness and two hues.
CONES = (
    (0.4122214708, 0.5363325363, 0.0514459929),
    (0.2119034982, 0.6806995451, 0.1073969566),
    (0.0883024619, 0.2817188376, 0.6299787005),
)
LAB = (
    (0.2104542553, 0.7936177850, -0.0040720468),
    (1.9779984951, -2.4285922050, 0.4505937099),
    (0.0259040371, 0.7827717662, -0.8086757660),
)
Matrix = tuple[tuple[float, float, float], ...]


def linear(colour: str) -> list[float]:
    """Return "#rrggbb" in linear RGB."""
    values = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    return [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in values]


def times(matrix: Matrix, vector: list[float]) -> list[float]:
    """Return the product."""
    return [sum(weight * value for weight, value in zip(row, vector, strict=True)) for row in matrix]


def seen(colour: str, eye: Matrix) -> list[float]:
    """Return what an eye sees of a colour, in Oklab."""
    light = [max(value, 0.0) for value in times(eye, linear(colour))]
    return times(LAB, [value ** (1 / 3) for value in times(CONES, light)])


def contrast(one: str, other: str) -> float:
    """Return the contrast of two colours (WCAG 2.2)."""
    low, high = sorted(sum(times(((0.2126, 0.7152, 0.0722),), linear(colour))) for colour in (one, other))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize(("colours", "paper"), [(palette.LIGHT, palette.PAPER), (palette.DARK, palette.PAPER_DARK)])
def test_colours_of_runs_differ_for_every_eye(colours: tuple[str, ...], paper: str) -> None:
    assert all(contrast(colour, paper) >= 3 for colour in colours)
    for eye in (ALL, PROTAN, DEUTAN):
        for one, other in combinations(colours, 2):
            # 0.02 is what is just seen in Oklab; lines are thin.
            assert math.dist(seen(one, eye), seen(other, eye)) > 0.1, (one, other)


@pytest.mark.parametrize("theme", style.THEMES)
def test_text_can_be_read(theme: str) -> None:
    paper, ink, faint, _, shade, link, good, bad = style.THEMES[theme]
    for text in (ink, faint, link, good, bad):
        assert min(contrast(text, paper), contrast(text, shade)) >= 4.5, text


def test_the_first_twenty_runs_differ_in_colour_or_dash_and_thirty_in_colour_or_shape() -> None:
    styles = [palette.Style(index) for index in range(30)]
    assert len({(one.colour, one.dash) for one in styles[:20]}) == 20
    assert len({(one.colour, one.marker(0, 0)) for one in styles}) == 30
