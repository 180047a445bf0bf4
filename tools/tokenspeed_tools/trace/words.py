"""Times, counts and lists as people read them. Pure functions, nothing of the engine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

US, MS, S = 1_000, 1_000_000, 1_000_000_000


def duration(ns: float) -> str:
    """Return `ns` in the unit that leaves three figures or so."""
    if ns >= 10 * S:
        return f"{ns / S:,.1f} s"
    if ns >= S:
        return f"{ns / S:.2f} s"
    if ns >= 10 * MS:
        return f"{ns / MS:.0f} ms"
    if ns >= MS:
        return f"{ns / MS:.1f} ms"
    return f"{ns / US:,.0f} µs"


def counted(count: int, one: str, many: str = "") -> str:
    """Return `count` with its noun."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def listed(items: Iterable[str], most: int = 3) -> str:
    """Return at most so many items as a list of words, and how many more there are."""
    named = list(items)
    if len(named) > most:
        named = [*named[: most - 1], f"{len(named) - most + 1} more"]
    return " and ".join([", ".join(named[:-1]), named[-1]] if len(named) > 1 else named)


def requests(numbers: Sequence[int]) -> str:
    """Return the requests by number."""
    noun = "request" if len(numbers) == 1 else "requests"
    return f"{noun} {listed(map(str, numbers))}"


def prompt_tokens(tokens: Mapping[int, int]) -> str:
    """Return how many prompt tokens of which requests."""
    largest = sorted(tokens, key=lambda request: -tokens[request])
    return f"{counted(sum(tokens.values()), 'prompt token')} of {requests(largest)}"
