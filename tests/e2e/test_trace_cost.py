"""What it costs an engine to be watched: the same load with and without a recorder, turn about."""

from __future__ import annotations

import asyncio
import json
import random
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tokenspeed_tools.trace.cost import cost_of
from tokenspeed_tools.trace.recording import load
from tokenspeed_tools.trace.steps import Span, steps_of

from tests.conftest import Record
from tests.e2e.served import Server, serving

PAIRS = 20
SESSIONS = 8
TOKENS = 96
RATIO_MAX = 1.01
RESAMPLES = 10_000


async def _reply(url: str) -> None:
    """Stream one reply to its end and look at none of it."""
    body = {"messages": [{"role": "user", "content": "Count."}], "max_tokens": TOKENS}
    data = json.dumps({**body, "ignore_eos": True, "stream": True}).encode()
    place = urlsplit(url)
    reader, writer = await asyncio.open_connection(place.hostname, place.port)
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\ncontent-length: {len(data)}\r\n"
    )
    writer.write(f"{head}content-type: application/json\r\n\r\n".encode() + data)
    answer = await reader.read(-1)
    assert b"data: [DONE]" in answer, answer[:300]
    writer.close()


async def _all(url: str) -> float:
    """Return the tokens per second of `SESSIONS` replies at once."""
    begin = time.perf_counter()
    await asyncio.gather(*(_reply(url) for _ in range(SESSIONS)))
    return SESSIONS * TOKENS / (time.perf_counter() - begin)


@contextmanager
def _recorder(server: Server, out: Path) -> Iterator[None]:
    """Record the server's engine until the end of the block."""
    command = [sys.executable, "-m", "tokenspeed_tools.trace", "record", "--engine", str(server.process.pid)]
    process = subprocess.Popen(
        [*command, "--seconds", "600", "--format", "points", "-o", str(out)], stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    while not process.stderr.readline().startswith("record "):
        assert process.poll() is None, "the recorder has ended"
    try:
        yield
    finally:
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 0, said


def _interval(ratios: Sequence[float]) -> tuple[float, float]:
    """Return the 95% bootstrap interval of the median."""
    draw = random.Random(0)
    medians = sorted(statistics.median(draw.choices(ratios, k=len(ratios))) for _ in range(RESAMPLES))
    return medians[int(0.025 * RESAMPLES)], medians[int(0.975 * RESAMPLES)]


@pytest.mark.prove(shows="a recorder costs at most 1% of throughput, over 20 alternating pairs", limit_s=900)
def test_a_recorder_costs_little(demo_model: Path, tmp_path: Path, proof: Record) -> None:
    ratios = []
    with serving(demo_model) as server:
        asyncio.run(_all(server.url))
        for pair in range(PAIRS):
            rates: dict[bool, float] = {}
            for watched in (pair % 2 == 0, pair % 2 == 1):
                if watched:
                    with _recorder(server, tmp_path / f"{pair}.points"):
                        rates[watched] = asyncio.run(_all(server.url))
                else:
                    rates[watched] = asyncio.run(_all(server.url))
            ratios.append(rates[False] / rates[True])
    recording = load(tmp_path / f"{PAIRS - 1}.points")
    cost = cost_of(recording.points, Span(recording.begin_ns, recording.end_ns), len(steps_of(recording.points)))
    low, high = _interval(ratios)
    median = statistics.median(ratios)
    proof(
        throughput_ratio=round(median, 4),
        interval_95=[round(low, 4), round(high, 4)],
        pairs=PAIRS,
        points_per_step=round(cost.native_per_step + cost.python_per_step, 1),
        ns_per_point={"native": round(cost.native_ns), "python": round(cost.python_ns)},
        points_us_per_step=round(cost.step_ns / 1e3, 1),
    )
    assert median <= RATIO_MAX, ratios
