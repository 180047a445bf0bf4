"""Times of short calls."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence

BATCHES = 15


def each_us(call: Callable[[], object], repeats: int) -> float:
    """Return the microseconds of one `call`: the median over batches of all `repeats`, which hide the clock's cost."""
    size = max(1, repeats // BATCHES)
    times = []
    for _ in range(BATCHES):
        begin = time.perf_counter()
        for _ in range(size):
            call()
        times.append((time.perf_counter() - begin) / size * 1e6)
    return statistics.median(times)


def once_ms(call: Callable[[], object]) -> float:
    """Return the milliseconds of one `call`."""
    begin = time.perf_counter()
    call()
    return (time.perf_counter() - begin) * 1e3


def share(values: Sequence[float], percent: int) -> float:
    """Return the value below which `percent` of `values` lie."""
    return sorted(values)[(len(values) - 1) * percent // 100]
