"""What the two processes do to each other: ping-pong, or a stream with one answer at its end.

Owns payloads and the work on each message received. Written once, for any `Port`.

Invariant: every byte of every message is read, and the sum proves it.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable

import msgspec
import numpy as np

from tokenspeed_tools.bench_ring.ports import Port

Touch = Callable[[memoryview | bytes], int]


class Job(msgspec.Struct, frozen=True):
    """One round of one test. `warmup` messages go first and are not counted."""

    transport: str
    test: str
    size_bytes: int
    messages: int
    warmup: int


def touch_of(size_bytes: int) -> Touch:
    """Return a function that reads every byte of a message of that size, fast, and sums it up."""
    return zlib.crc32 if size_bytes < 4096 else _sum_words


def _sum_words(data: memoryview | bytes) -> int:
    return int(np.frombuffer(data, np.uint64).sum())


def payload_of(size_bytes: int) -> bytes:
    """Return `size_bytes` bytes, the same in each process."""
    return np.random.default_rng(size_bytes).bytes(size_bytes)


async def lead(port: Port, job: Job) -> tuple[list[int], float]:
    """Run the near side: return latencies in ns (ping-pong) and the seconds that it all took."""
    payload, touch = payload_of(job.size_bytes), touch_of(job.size_bytes)
    await _exchange(port, payload, touch, job.warmup, job.test)
    begin = time.perf_counter()
    latencies = await _exchange(port, payload, touch, job.messages, job.test)
    return latencies, time.perf_counter() - begin


async def _exchange(port: Port, payload: bytes, touch: Touch, messages: int, test: str) -> list[int]:
    if test == "stream":
        for _ in range(messages):
            await port.send(payload)
        await port.receive()
        port.release()
        return []
    latencies, clock = [], time.perf_counter_ns
    for _ in range(messages):
        begin = clock()
        await port.send(payload)
        touch(await port.receive())
        port.release()
        latencies.append(clock() - begin)
    return latencies


async def follow(port: Port, job: Job) -> int:
    """Run the far side: answer each message or each batch; return the sum of what was touched."""
    payload, touch, total = payload_of(job.size_bytes), touch_of(job.size_bytes), 0
    for messages in (job.warmup, job.messages):
        for _ in range(messages):
            total += touch(await port.receive())
            port.release()
            if job.test == "pingpong":
                await port.send(payload)
        if job.test == "stream":
            await port.send(payload)
    return total
