"""Numbers that an option gives once or as a distribution.

Owns their spelling and the drawing. A number of tokens is `512` or `256-1024`, every whole number
between as likely; a time is `2`, `1-5`, `exp:MEAN` or `lognormal:MEDIAN,SIGMA`, in seconds.
"""

from __future__ import annotations

import argparse
import math
import random
import re

import msgspec

_SPAN = re.compile(r"(\d+)(?:-(\d+))?")
_NUMBER = r"(\d+(?:\.\d+)?)"
_TIMES = {
    "uniform": re.compile(rf"{_NUMBER}(?:-{_NUMBER})?"),
    "exp": re.compile(rf"exp:{_NUMBER}"),
    "lognormal": re.compile(rf"lognormal:{_NUMBER},{_NUMBER}"),
}


class Span(msgspec.Struct, frozen=True):
    """Whole numbers from `low` to `high`."""

    low: int
    high: int

    def draw(self, rng: random.Random) -> int:
        """Return one of them."""
        return rng.randint(self.low, self.high)

    def __str__(self) -> str:
        """Return it as the option spells it."""
        return str(self.low) if self.low == self.high else f"{self.low}-{self.high}"


class Wait(msgspec.Struct, frozen=True):
    """A time in seconds: `kind` of _TIMES, with its one or two numbers."""

    kind: str
    first: float
    second: float

    def draw(self, rng: random.Random) -> float:
        """Return a time."""
        if self.kind == "exp":
            return rng.expovariate(1 / self.first) if self.first else 0.0
        if self.kind == "lognormal":
            return rng.lognormvariate(math.log(self.first), self.second) if self.first else 0.0
        return rng.uniform(self.first, self.second)

    def __str__(self) -> str:
        """Return it as the option spells it."""
        if self.kind == "lognormal":
            return f"lognormal:{self.first:g},{self.second:g}"
        if self.kind == "exp":
            return f"exp:{self.first:g}"
        return f"{self.first:g}" if self.first == self.second else f"{self.first:g}-{self.second:g}"


def span(text: str) -> Span:
    """Read a number of tokens."""
    found = _SPAN.fullmatch(text)
    value = Span(int(found[1]), int(found[2] or found[1])) if found else Span(0, 0)
    if not 1 <= value.low <= value.high < 1 << 31:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of tokens such as 512, or two of them: 256-1024")
    return value


def wait(text: str) -> Wait:
    """Read a time."""
    for kind, pattern in _TIMES.items():
        if found := pattern.fullmatch(text):
            first = float(found[1])
            second = float(found[found.lastindex or 1])
            if kind != "uniform" or first <= second:
                return Wait(kind, first, second)
    raise argparse.ArgumentTypeError(f"{text!r} is not a time such as 2, 1-5, exp:3 or lognormal:3,0.8, in seconds")
