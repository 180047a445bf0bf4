"""How wide a text will be, and how numbers are written.

Widths are estimates for the widest of the usual sans-serif fonts (DejaVu Sans, Verdana), so a text that fits by
them fits in the reader's font too. Knows no chart.
"""

from __future__ import annotations

import unicodedata

from tokenspeed_tools.report.markup import clean

# Widths in ems, by character.
NARROW = dict.fromkeys("ijlI.,:;'|! ", 0.36) | dict.fromkeys('frt()[]/\\-"', 0.44)
BROAD = (
    dict.fromkeys("mwMW@%", 1.02) | dict.fromkeys("+<>=×~≥≤→^#", 0.86) | dict.fromkeys("ABCDEFGHKNOPQRSTUVXYZ&", 0.8)
)
WIDTHS = NARROW | BROAD
OTHER, WIDE = 0.65, 1.1
ELLIPSIS = "…"


def text_width(text: str, size: float) -> float:
    """Return the pixels that a text takes at most, at a font size in pixels."""
    return size * sum(map(_em, text))


def _em(character: str) -> float:
    if character.isascii():
        return WIDTHS.get(character, OTHER)
    if unicodedata.combining(character):
        return 0.0
    return WIDE if unicodedata.east_asian_width(character) in "WFA" else WIDTHS.get(character, 0.8)


def fitted(text: object, size: float, width: float) -> str:
    """Return the text, cut and closed with an ellipsis where it is wider than `width` pixels."""
    said = " ".join(clean(text).split())
    if text_width(said, size) <= width:
        return said
    while said and text_width(said + ELLIPSIS, size) > width:
        said = said[:-1]
    return said.rstrip() + ELLIPSIS


def short(value: float) -> str:
    """Return a number for an axis: three digits that matter, with k, M or G."""
    for limit, suffix in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= limit:
            return f"{value / (1e3 if suffix == 'k' else limit):.4g}{suffix}"
    return f"{value:.4g}" if abs(value) >= 1e-4 or value == 0 else f"{value:.0e}"


def figure(value: float | None) -> str:
    """Return a number for a table: three digits that matter, thousands parted; a dash when there is none."""
    if value is None:
        return "–"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def moment(iso: str) -> str:
    """Return an ISO 8601 time in UTC to the second, as people write it."""
    return iso.replace("T", " ").partition(".")[0].removesuffix("Z")


def count(number: int, one: str, many: str = "") -> str:
    """Return "1 request" or "1,234 requests"."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"
