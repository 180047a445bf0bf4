"""Text as agents read it, made from a seed: lines of a program, always the same and never the repository's own.

Its names are made of syllables and come again as names in a program do, so that a tokenizer has the
work that it has with real sources.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

SYLLABLES = tuple(map("".join, zip("bcdfghjklmnprstvwxz", "aeiouaeiouaeiouaeio", strict=True)))
WORDS = ("str", "get", "set", "run", "log", "map", "key", "val", "err", "ctx", "is", "by", "in", "on")
NAMES = 3_000
FORMS = (
    "    {0}.{1}({2}, {3}={4})\n",
    "def {0}_{1}({2}: int, {3}: str) -> None:\n",
    "        if {0} is not None and {1}[{4}] > {5}:\n",
    '            raise ValueError(f"{0} of {{{1}!r}} is {4}, {5} is allowed")\n',
    "    # the {0} of a {1} waits for {2} {3}, since {4} may come first\n",
    "    return {0}({1}({2}), [{3} for {3} in {1}[:{4}]])\n",
    "\n",
)


def names() -> list[str]:
    """Return the names that all texts are made of."""
    chance = random.Random(0)
    return ["".join(chance.choices(SYLLABLES + WORDS, k=chance.choice((1, 2, 2, 3)))) for _ in range(NAMES)]


def lines(seed: int) -> Iterator[str]:
    """Yield lines without end."""
    chance, known = random.Random(seed), names()
    while True:
        # Few names are used often and many hardly ever.
        used = [known[int(NAMES * chance.random() ** 3)] for _ in range(4)]
        yield chance.choice(FORMS).format(*used, chance.randrange(10_000), chance.randrange(100))


def text(seed: int, chars: int) -> str:
    """Return `chars` characters."""
    parts, size = [], 0
    for line in lines(seed):
        parts.append(line)
        size += len(line)
        if size >= chars:
            return "".join(parts)[:chars]
    raise AssertionError("the lines have no end")
