"""Elements of HTML and SVG as text; what comes from outside is escaped here and nowhere else.

`Markup` is text that is markup already. `element` escapes every child and attribute that is not, so a label,
a model's name or an error text can end no tag. Characters that XML does not allow, and those that turn the
direction of the text around them, become U+FFFD.

Knows no plot and no page. Invariant: no character of a plain string is ever read as markup.
"""

from __future__ import annotations

import html
import re

# What XML 1.0 does not allow (section 2.2, Char), and the marks that reorder what is read.
UNSAFE = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]|[\u202a-\u202e\u2066-\u2069\u200e\u200f]")
# These never have children; HTML and XML both let them close themselves inside an SVG.
SHAPES = frozenset({"circle", "line", "path", "rect"})


class Markup(str):
    """Text that needs no escaping, since `element` or a constant of the source made it."""

    __slots__ = ()


def clean(text: object) -> str:
    """Return the text with every character that a document must not hold replaced by U+FFFD."""
    return UNSAFE.sub("\ufffd", str(text))


def escaped(text: object) -> str:
    """Return the text for use between tags and in attributes."""
    return text if isinstance(text, Markup) else html.escape(clean(text))


def joined(*parts: object) -> Markup:
    """Return the parts one after the other, each escaped unless it is markup."""
    return Markup("".join(escaped(part) for part in parts))


def number(value: float) -> str:
    """Return a coordinate with at most two digits after the point."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


def element(tag: str, *children: object, **attributes: object) -> Markup:
    """Return `<tag attributes>children</tag>`.

    An attribute's name loses a trailing underscore (`class_`) and its others become hyphens; one that is None
    or False is left out, True stands without a value's meaning (`open="open"`).
    """
    said = []
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        name = key.rstrip("_").replace("_", "-")
        text = name if value is True else number(value) if isinstance(value, float) else escaped(value)
        said.append(f' {name}="{text}"')
    if tag in SHAPES and not children:
        return Markup(f"<{tag}{''.join(said)}/>")
    return Markup(f"<{tag}{''.join(said)}>{joined(*children)}</{tag}>")
