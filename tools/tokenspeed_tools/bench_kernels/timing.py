"""Times a call on the GPU, and measures what the chip can do at all.

A case that a CUDA graph may hold is captured many times over into one graph, so that the launches
cost what they cost in a captured step; others run one after another. Times are medians of repeats,
between events. A `Ring` hands out copies of an input in turn, together larger than the L2 cache.

Invariant: nothing is compiled or allocated between two events.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch

from tokenspeed_tools.bench_kernels.case import Case

# Three times the L2 cache of an H200.
ROTATED_BYTES = 180 << 20
# A repeat takes about this long; it holds so many calls at least, and at most.
REPEAT_US, CALLS_MIN, CALLS_MAX = 4000.0, 8, 128
REPEATS = 15

Item = TypeVar("Item")


class Ring(Generic[Item]):
    """Copies of an input of `item_bytes`, made by `make` and handed out in turn."""

    def __init__(self, make: Callable[[], Item], item_bytes: int) -> None:
        """Make as many as pass the L2 cache, one at least."""
        self._items = [make() for _ in range(min(CALLS_MAX, max(1, ROTATED_BYTES // max(1, item_bytes))))]
        self._next = 0

    def next(self) -> Item:
        """Return the next copy."""
        self._next = (self._next + 1) % len(self._items)
        return self._items[self._next]


@dataclass(frozen=True, slots=True)
class Ceilings:
    """What this chip reaches: bytes read plus written by a copy, and a square bf16 product."""

    copy_bytes_per_s: float
    product_flops_per_s: float


def ceilings() -> Ceilings:
    """Measure a copy of 2 GiB and a product of 8192 x 8192 matrices of random numbers."""
    source = torch.empty(1 << 31, dtype=torch.uint8, device="cuda").random_()
    target = torch.empty_like(source)
    copy_us = time_us(Case("copy", lambda: target.copy_(source)))
    left, right = (torch.randn(8192, 8192, dtype=torch.bfloat16, device="cuda") for _ in range(2))
    product_us = time_us(Case("product", lambda: torch.mm(left, right)))
    return Ceilings(2e6 * source.numel() / copy_us, 2e6 * 8192**3 / product_us)


def time_us(case: Case) -> float:
    """Return the microseconds of one call, the median of repeats of many calls."""
    # Inputs were made on another stream.
    torch.cuda.synchronize()
    stream: torch.cuda.Stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    with torch.cuda.stream(stream):
        # Compiles, fills caches, and lets a graph find all memory it asks for.
        for _ in range(3):
            case.run()
        once_us = _between_events(_several(case, 3)) / 3
        calls = min(CALLS_MAX, max(CALLS_MIN, int(REPEAT_US / once_us)))
        replay = _graph(case, calls, stream).replay if case.graph else _several(case, calls)
        replay()
        return statistics.median(_between_events(replay) for _ in range(REPEATS)) / calls


def _several(case: Case, calls: int) -> Callable[[], None]:
    def run() -> None:
        for _ in range(calls):
            case.run()

    return run


def _graph(case: Case, calls: int, stream: torch.cuda.Stream) -> torch.cuda.CUDAGraph:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for _ in range(calls):
            case.run()
    return graph


def _between_events(run: Callable[[], None]) -> float:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    begin.record()
    run()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) * 1000.0
