"""How fast the machine is just now: six things that no change of the engine touches.

    hash     GB a second through BLAKE2b, one thread: integers in native code
    objects  million turns a second of a loop in Python that makes small objects and looks them up in a
             large table, one thread
    copy     GB a second copied between two large arrays by all threads
    gemm     GFLOP a second of small float32 products by all threads, none of which waits for another
    work     the same products, all samples together: what others take of the machine is in it, as it
             is in everything that lasts
    wake     thousand times a second that a byte goes to another process and back: two wake-ups, which
             take longer on an idle machine than on a busy one

hash, objects and wake are medians of samples so short that few are interrupted, as figures of short
operations are; copy and gemm are the fastest of a few, as figures of kernels are.

Invariant: what is computed here never changes; if it must, `line.SCHEMA` does too.
"""

from __future__ import annotations

import hashlib
import math
import os
import statistics
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from tokenspeed_tools.bench_suite.timing import seconds_of

Speeds = dict[str, float]

SHORT_SAMPLES = 150
HASH_BYTES = 64 << 10
OBJECTS_TURNS, TABLE_ENTRIES = 400, 50_000
COPY_BYTES, COPY_SAMPLES = 64 << 20, 5
# No BLAS cuts so small a product up between threads.
GEMM_SHAPE, GEMM_SAMPLES = (128, 64, 64), 25
ECHO = "import os\nwhile data := os.read(0, 1): os.write(1, data)"


class Anchors:
    """The arrays that are copied and multiplied, and the process that answers."""

    def __init__(self) -> None:
        threads = len(os.sched_getaffinity(0))
        self._pool = ThreadPoolExecutor(threads)
        parts = [np.ones(COPY_BYTES // threads // 8) for _ in range(threads)]
        self._copies = [(part, np.zeros_like(part)) for part in parts]
        self._factors = [np.random.default_rng(seed).random(GEMM_SHAPE, np.float32) for seed in range(threads)]
        self._products = [np.empty_like(factors) for factors in self._factors]
        self._echo = subprocess.Popen(
            [sys.executable, "-S", "-c", ECHO], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
        )
        self._hashed = bytes(HASH_BYTES)
        self._table = {f"key {number}": (number, bytes(16)) for number in range(TABLE_ENTRIES)}
        self._keys = list(self._table)
        self.measure()

    def measure(self) -> Speeds:
        """Return the speed of each anchor now; takes about a fifth of a second."""
        products_s = [seconds_of(self._multiply) for _ in range(GEMM_SAMPLES)]
        gflop = 2 * math.prod(GEMM_SHAPE) * GEMM_SHAPE[-1] * len(self._factors) / 1e9
        return {
            "hash": HASH_BYTES / 1e9 / _median_s(self._hash),
            "objects": OBJECTS_TURNS / 1e6 / _median_s(self._objects),
            "copy": COPY_BYTES / 1e9 / min(seconds_of(self._copy) for _ in range(COPY_SAMPLES)),
            "gemm": gflop / min(products_s),
            "work": gflop * GEMM_SAMPLES / sum(products_s),
            "wake": 1e-3 / _median_s(self._wake),
        }

    def close(self) -> None:
        """End the threads and the other process."""
        self._pool.shutdown()
        self._echo.communicate()

    def _copy(self) -> None:
        list(self._pool.map(np.copyto, *zip(*((to, source) for source, to in self._copies), strict=True)))

    def _wake(self) -> None:
        assert self._echo.stdin is not None
        assert self._echo.stdout is not None
        self._echo.stdin.write(b"x")
        self._echo.stdout.read(1)

    def _hash(self) -> bytes:
        return hashlib.blake2b(self._hashed).digest()

    def _objects(self) -> list[tuple[str, bytes]]:
        found = []
        # Steps of a prime visit the whole table, out of the order in which it was made.
        for turn in range(OBJECTS_TURNS):
            number, data = self._table[self._keys[turn * 7919 % TABLE_ENTRIES]]
            found.append((str(number), data[4:12]))
        return found

    def _multiply(self) -> None:
        list(self._pool.map(_square, self._factors, self._products))


def _square(factors: np.typing.NDArray[np.float32], out: np.typing.NDArray[np.float32]) -> None:
    np.matmul(factors, factors, out=out)


def _median_s(call: Callable[[], object]) -> float:
    return statistics.median(seconds_of(call) for _ in range(SHORT_SAMPLES))
