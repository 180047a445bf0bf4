"""Times of short calls."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence

BATCH_S = 2e-4
BATCHES_MIN = 7


def seconds_of(call: Callable[[], object]) -> float:
    """Return the seconds of one `call`."""
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def each_us(call: Callable[[], object], budget_ms: float) -> float:
    """Return the microseconds of one `call`: the median over batches of calls, in about `budget_ms` together.

    A batch is long enough to hide the clock's cost, and so short that few are interrupted by others.
    """
    once_s = min(seconds_of(call) for _ in range(3))
    size = max(1, int(BATCH_S / once_s))
    batches = max(BATCHES_MIN, int(budget_ms / 1e3 / (size * once_s)))
    return statistics.median(seconds_of(lambda: [call() for _ in range(size)]) / size * 1e6 for _ in range(batches))


def share(values: Sequence[float], percent: int) -> float:
    """Return the value below which `percent` of `values` lie."""
    return sorted(values)[(len(values) - 1) * percent // 100]
