"""Text that knows which of its characters the model's maker wrote.

A chat template mixes its own words with what users say, and only the former may become control
tokens. So every literal of the template is a `Trusted` string, and trust follows the characters
through `+`, slices, `trim` and the like. It is trust that is tracked, not its absence: an operation
that is unknown here returns a plain string, and what is plain is never taken for control.

    Trusted("<|user|>") + "hi<|end|>"   spans ((0, 8),): the last nine characters are plain

Invariant: as a string, a `Trusted` equals what plain strings would have given; `spans` are
ascending, not empty, apart from each other, and inside the text.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import SupportsIndex, TypeAlias

Span: TypeAlias = tuple[int, int]


class Trusted(str):
    """A string of which the characters in `spans` (begin, end) come from the template."""

    __slots__ = ("spans",)
    spans: tuple[Span, ...]

    def __new__(cls, value: object = "", spans: tuple[Span, ...] = ()) -> Trusted:
        text = super().__new__(cls, value)
        text.spans = spans
        return text

    def __str__(self) -> str:
        return self

    def __add__(self, other: str) -> str:
        if not isinstance(other, str):
            return NotImplemented
        return concat((self, other))

    def __radd__(self, other: str) -> str:
        if not isinstance(other, str):
            return NotImplemented
        return concat((other, self))

    def __getitem__(self, key: SupportsIndex | slice) -> str:
        if not isinstance(key, slice):
            place = range(len(self))[key]
            return self._part(place, place + 1)
        start, stop, step = key.indices(len(self))
        return self._part(start, max(start, stop)) if step == 1 else super().__getitem__(key)

    def strip(self, chars: str | None = None, /) -> str:
        """As `str.strip`."""
        return self._part(len(self) - len(super().lstrip(chars)), len(super().rstrip(chars)))

    def lstrip(self, chars: str | None = None, /) -> str:
        """As `str.lstrip`."""
        return self._part(len(self) - len(super().lstrip(chars)), len(self))

    def rstrip(self, chars: str | None = None, /) -> str:
        """As `str.rstrip`."""
        return self._part(0, len(super().rstrip(chars)))

    def join(self, items: Iterable[str], /) -> str:
        """As `str.join`."""
        return join(self, items)

    def replace(self, old: str, new: str, count: SupportsIndex = -1, /) -> str:
        """As `str.replace`; an empty `old` loses the trust."""
        left = count.__index__()
        if not old:
            return super().replace(old, new, left)
        pieces: list[str] = []
        begin = 0
        while left and (place := self.find(old, begin)) >= 0:
            pieces += (self._part(begin, place), new)
            begin, left = place + len(old), left - 1
        return concat((*pieces, self._part(begin, len(self))))

    def lower(self) -> str:
        """As `str.lower`."""
        return self._respelled(super().lower())

    def upper(self) -> str:
        """As `str.upper`."""
        return self._respelled(super().upper())

    def capitalize(self) -> str:
        """As `str.capitalize`."""
        return self._respelled(super().capitalize())

    def title(self) -> str:
        """As `str.title`."""
        return self._respelled(super().title())

    def _part(self, start: int, stop: int) -> str:
        text = str.__getitem__(self, slice(start, stop))
        spans = ((max(a, start) - start, min(b, stop) - start) for a, b in self.spans if a < stop and b > start)
        return _made(text, tuple(span for span in spans if span[0] < span[1]))

    def _respelled(self, text: str) -> str:
        # Where the length stays, characters stay in place, unless one grew while another shrank: no
        # case mapping shrinks a string, so that cannot be.
        if self.spans == ((0, len(self)),):
            return trust(text)
        return _made(text, self.spans) if len(text) == len(self) else text


def trust(text: str) -> str:
    """Return `text` as the template's own."""
    return Trusted(text, ((0, len(text)),)) if text else text


def plain(text: str) -> str:
    """Return `text` without its trust."""
    return str.__str__(text)


def spans_of(text: str) -> tuple[Span, ...]:
    """Return the trusted spans of any string."""
    return text.spans if isinstance(text, Trusted) else ()


def concat(pieces: Iterable[str]) -> str:
    """Return the concatenation of `pieces`; neighbouring spans become one."""
    pieces = tuple(pieces)
    spans: list[Span] = []
    place = 0
    for piece in pieces:
        if isinstance(piece, Trusted):
            for begin, end in piece.spans:
                if spans and spans[-1][1] == place + begin:
                    spans[-1] = (spans[-1][0], place + end)
                else:
                    spans.append((place + begin, place + end))
        place += len(piece)
    return _made("".join(pieces), tuple(spans))


def join(between: str, items: Iterable[str]) -> str:
    """Return `items` with `between` between them."""
    pieces: list[str] = []
    for item in items:
        pieces += (between, item) if pieces else (item,)
    return concat(pieces)


def _made(text: str, spans: tuple[Span, ...]) -> str:
    return Trusted(text, spans) if spans else text
