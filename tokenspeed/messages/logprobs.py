"""Log-probabilities as they travel: entries of 4-byte words, k likeliest ids in each.

    id (int32) | rank (int32) | log-probability (float32) | k ids (int32) | their k log-probabilities (float32)

Invariant: a run of n entries of one k is n * `entry_bytes(k)` bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple


class Entry(NamedTuple):
    """One position: the id that stands there, its rank from 1 on, and the likeliest ids in order."""

    id: int
    rank: int
    logprob: float
    top_ids: list[int]
    top_logprobs: list[float]


def entry_bytes(top: int) -> int:
    """Return the bytes of an entry that brings `top` likeliest ids along."""
    return 4 * (3 + 2 * top)


def entries(data: bytes | memoryview, top: int) -> Iterator[Entry]:
    """Yield the entries of `data`, which all bring `top` likeliest ids along."""
    ints: memoryview[int] = memoryview(data).cast("B").cast("i")
    floats: memoryview[float] = memoryview(data).cast("B").cast("f")
    for begin in range(0, len(ints), 3 + 2 * top):
        middle, end = begin + 3 + top, begin + 3 + 2 * top
        yield Entry(
            ints[begin],
            ints[begin + 1],
            floats[begin + 2],
            ints[begin + 3 : middle].tolist(),
            list(floats[middle:end]),
        )
