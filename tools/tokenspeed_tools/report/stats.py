"""What the plots show, computed from plain numbers: distributions, fronts, rates.

Knows no run and no drawing. Invariant: nothing is smoothed; what is thinned keeps its smallest and its largest.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tokenspeed_tools.report.scale import nice_step

Point = tuple[float, float]
STEPS = 1000  # of a drawn distribution
TAIL = 60  # largest values that are always drawn one by one


def ecdf(values: Iterable[float]) -> list[Point]:
    """Return (value, share of values at most it), rising, the last share 1; empty for none.

    More than a thousand values are thinned evenly; the smallest and the 60 largest are always there.
    """
    ordered = sorted(values)
    total = len(ordered)
    if total <= STEPS:
        ranks: Iterable[int] = range(total)
    else:
        ranks = sorted({*range(0, total, -(-total // STEPS)), *range(total - TAIL, total)})
    return [(ordered[rank], (rank + 1) / total) for rank in ranks]


def pareto_front(points: Sequence[Point]) -> list[int]:
    """Return the indices of the points that no other dominates, by rising x.

    A point dominates another when it is at least as large in both and larger in one. Equal points stay together.
    """
    order = sorted(range(len(points)), key=lambda index: points[index], reverse=True)
    front: list[int] = []
    for index in order:
        if not front or points[index][1] > points[front[-1]][1] or points[index] == points[front[-1]]:
            front.append(index)
    return front[::-1]


def bin_width(duration_s: float, bins: int) -> float:
    """Return a round width in seconds that cuts the time into at most `bins` pieces."""
    return nice_step(max(duration_s, 1e-3), bins)


def rates(arrivals: Iterable[tuple[float, int]], start_s: float, end_s: float, width_s: float) -> list[Point]:
    """Return (begin of the piece, tokens per second in it) for each piece from `start_s` on.

    `arrivals` are (seconds, tokens). What is left over at the end belongs to the last piece, which is that much
    longer: a piece of a few milliseconds would show a rate that never was.
    """
    pieces = max(1, int((end_s - start_s) / width_s + 1e-9))
    tokens = [0] * pieces
    for at, arrived in arrivals:
        tokens[min(max(int((at - start_s) / width_s), 0), pieces - 1)] += arrived
    last_s = max(end_s - start_s - (pieces - 1) * width_s, 1e-6)
    lengths = [width_s] * (pieces - 1) + [last_s]
    return [
        (start_s + index * width_s, arrived / length)
        for index, (arrived, length) in enumerate(zip(tokens, lengths, strict=True))
    ]
