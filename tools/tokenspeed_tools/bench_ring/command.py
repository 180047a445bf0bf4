"""Measures the ring against ZeroMQ: two processes, and all else the same on both sides.

Owns the rounds and the numbers. Both transports run under uvloop with the same
payloads, the same work on each message and the same bytes in flight. Rounds alternate between the
transports, so that a busy machine is busy for both; the medians of the rounds are compared.
Progress goes to stderr, the last line on stdout is JSON.

Invariant: a ratio compares rounds of this very run.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
import uvloop
from zmq.sugar.version import pyzmq_version, zmq_version

from tokenspeed.ipc.ring import create_ring
from tokenspeed_tools.bench_ring.exchange import Job, lead, payload_of, touch_of
from tokenspeed_tools.bench_ring.ports import IN_FLIGHT_BYTES
from tokenspeed_tools.bench_ring.processes import EPOCH, PEER_FLAG, Peer, Report, Rig, Setup, cpu_s, serve

ROUNDS = 7
#: On a busy machine fewer rounds are run, never fewer than `ROUNDS_MIN`.
BUDGET_S = 40.0
ROUNDS_MIN = 3
TRANSPORTS = ("ring", "zmq")
#: test, bytes of a message, messages for each transport: enough for a fair part of a second.
TESTS: dict[str, tuple[str, int, dict[str, int]]] = {
    "pingpong_200b": ("pingpong", 200, {"ring": 5_000, "zmq": 2_000}),
    "throughput_200b": ("stream", 200, {"ring": 200_000, "zmq": 20_000}),
    "throughput_200kb": ("stream", 200_000, {"ring": 8_000, "zmq": 2_000}),
}


class Round(msgspec.Struct, frozen=True):
    """What one round gave; CPU time is that of both processes. `p50_us`, `p99_us`: ping-pong only."""

    messages_per_s: float
    cpu_us_per_message: float
    p50_us: float
    p99_us: float


async def run_round(rig: Rig, peer: Peer, job: Job) -> Round:
    """Run `job` once, with this process on the near side."""
    peer.say(msgspec.json.encode(job))
    peer.hear()
    port = rig.port(job)
    begin = cpu_s()
    latencies_ns, seconds = await lead(port, job)
    cpu = cpu_s() - begin
    report = msgspec.json.decode(peer.hear(), type=Report)
    messages = job.warmup + job.messages
    if report.checksum != messages * touch_of(job.size_bytes)(payload_of(job.size_bytes)):
        raise SystemExit(f"{job}: wrong bytes arrived")
    peer.say(b"done")
    port.close()
    latencies_ns.sort()
    at = [latencies_ns[len(latencies_ns) * share // 100] / 1e3 if latencies_ns else 0.0 for share in (50, 99)]
    return Round(job.messages / seconds, (cpu + report.cpu_s) / messages * 1e6, *at)


def run_tests(rig: Rig, peer: Peer, divisor: int = 1) -> Iterator[tuple[str, str, Round]]:
    """Run every test once on each transport, with a part of its messages; yield test, transport and what it gave."""
    for name, (test, size_bytes, messages) in TESTS.items():
        for kind in TRANSPORTS:
            count = max(1, messages[kind] // divisor)
            job = Job(kind, test, size_bytes, count, warmup=max(1, count // 20))
            yield name, kind, uvloop.run(run_round(rig, peer, job))


def measure(rig: Rig, peer: Peer) -> dict[str, dict[str, list[Round]]]:
    """Return the rounds of each test and transport."""
    rounds: dict[str, dict[str, list[Round]]] = {name: {kind: [] for kind in TRANSPORTS} for name in TESTS}
    begin = time.monotonic()
    for number in range(ROUNDS):
        if number >= ROUNDS_MIN and time.monotonic() - begin > BUDGET_S:
            break
        for name, kind, result in run_tests(rig, peer):
            rounds[name][kind].append(result)
            print(f"round {number + 1}/{ROUNDS} {name} {kind}: {result}", file=sys.stderr, flush=True)
    return rounds


@contextlib.contextmanager
def rigged() -> Iterator[tuple[Rig, Peer]]:
    """Yield both transports ready to use, and the process at their other end."""
    there, back = (create_ring(IN_FLIGHT_BYTES, EPOCH) for _ in range(2))
    with (
        contextlib.closing(there),
        contextlib.closing(back),
        tempfile.TemporaryDirectory(prefix="bench-ring-") as folder,
    ):
        paths = (f"{folder}/there", f"{folder}/back")
        with contextlib.closing(Peer(Setup(there.fds(), back.fds(), there.capacity, *paths))) as peer:
            yield Rig((there, back), paths), peer


def summary(rounds: dict[str, dict[str, list[Round]]]) -> dict[str, Any]:
    """Return the line to print: the ratios of medians, then the medians themselves."""

    def median(name: str, kind: str, of: Callable[[Round], float]) -> float:
        return statistics.median(of(one) for one in rounds[name][kind])

    def ratio(name: str, of: Callable[[Round], float]) -> float:
        return round(median(name, "ring", of) / median(name, "zmq", of), 3)

    line: dict[str, Any] = {
        "pingpong_p50_ratio_to_zmq": ratio("pingpong_200b", lambda one: one.p50_us),
        "pingpong_p99_ratio_to_zmq": ratio("pingpong_200b", lambda one: one.p99_us),
        "throughput_200b_ratio_to_zmq": ratio("throughput_200b", lambda one: one.messages_per_s),
        "throughput_200kb_ratio_to_zmq": ratio("throughput_200kb", lambda one: one.messages_per_s),
    }
    for kind in TRANSPORTS:
        for name in TESTS:
            if name.startswith("pingpong"):
                line[f"{kind}_{name}_p50_us"] = round(median(name, kind, lambda one: one.p50_us), 1)
                line[f"{kind}_{name}_p99_us"] = round(median(name, kind, lambda one: one.p99_us), 1)
            else:
                line[f"{kind}_{name}_per_s"] = round(median(name, kind, lambda one: one.messages_per_s))
            cpu = median(name, kind, lambda one: one.cpu_us_per_message)
            line[f"{kind}_{name}_cpu_s_per_million"] = round(cpu, 3)
    return line | {"rounds": len(rounds["pingpong_200b"]["ring"])} | _machine()


def _machine() -> dict[str, Any]:
    git = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return {
        "commit": git.stdout.strip(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "python": platform.python_version(),
        "pyzmq": pyzmq_version(),
        "libzmq": zmq_version(),
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark, or be its peer process; return the exit code."""
    parser = argparse.ArgumentParser(prog="bench-ring", description="Compare the rings with ZeroMQ.")
    parser.add_argument(PEER_FLAG, help=argparse.SUPPRESS)
    peer_setup = parser.parse_args(argv).peer
    if peer_setup is not None:
        serve(msgspec.json.decode(peer_setup, type=Setup))
        return 0
    with rigged() as (rig, peer):
        rounds = measure(rig, peer)
    print(json.dumps(summary(rounds)))
    return 0
