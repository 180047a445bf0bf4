"""How fast the machine is just now: three things that no change of the engine touches.

    loop  million turns a second of a loop in Python, one thread: interpreter, branches, integers
    copy  GB copied a second between two large arrays, all threads: memory
    gemm  GFLOP a second of a float32 product, all threads: vector units

Each is the median of short samples, as most figures are medians of short operations.

Invariant: what is computed here never changes; if it must, `line.SCHEMA` does too.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

Speeds = dict[str, float]

SAMPLES = 5
LOOP_TURNS = 40_000
COPY_BYTES = 64 << 20
GEMM_SIZE = 640


class Anchors:
    """The arrays that are copied and multiplied."""

    def __init__(self) -> None:
        threads = len(os.sched_getaffinity(0))
        self._pool = ThreadPoolExecutor(threads)
        parts = [np.ones(COPY_BYTES // threads // 8) for _ in range(threads)]
        self._copies = [(part, np.zeros_like(part)) for part in parts]
        self._left, self._right = (np.random.default_rng(seed).random((GEMM_SIZE,) * 2, np.float32) for seed in (1, 2))
        self._product = np.empty_like(self._left)
        self.measure()

    def measure(self) -> Speeds:
        """Return the speed of each anchor now; takes about a fifth of a second."""
        return {
            "loop": LOOP_TURNS / 1e6 / _median_s(_loop),
            "copy": COPY_BYTES / 1e9 / _median_s(self._copy),
            "gemm": 2 * GEMM_SIZE**3 / 1e9 / _median_s(self._multiply),
        }

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown()

    def _copy(self) -> None:
        for done in [self._pool.submit(np.copyto, to, source) for source, to in self._copies]:
            done.result()

    def _multiply(self) -> None:
        np.matmul(self._left, self._right, out=self._product)


def _loop() -> int:
    total = 0
    for number in range(LOOP_TURNS):
        total = (total * 31 + number) & 0xFFFF
    return total


def _median_s(work: Callable[[], object]) -> float:
    seconds = []
    for _ in range(SAMPLES):
        begin = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - begin)
    return statistics.median(seconds)
