"""Measures the ring against ZeroMQ: two processes, and all else the same on both sides.

Owns the two processes, the rounds and the numbers. Both transports run under uvloop with the same
payloads, the same work on each message and the same bytes in flight. Rounds alternate between the
transports, so that a busy machine is busy for both; the medians of the rounds are compared.
Progress goes to stderr, the last line on stdout is JSON.

Invariant: a ratio compares rounds of this very run.
"""

from __future__ import annotations

import asyncio
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import uvloop
import zmq

from tokenspeed.ipc.ring import RingFiles, create_ring
from tokenspeed_tools.bench_ring.exchange import Job, follow, lead, payload_of, touch_of
from tokenspeed_tools.bench_ring.ports import IN_FLIGHT_BYTES, Port, RingPort, ZmqPort

ROUNDS = 5
TRANSPORTS = ("ring", "zmq")
#: test, bytes of a message, messages for each transport: enough for a good part of a second.
TESTS: dict[str, tuple[str, int, dict[str, int]]] = {
    "pingpong_200b": ("pingpong", 200, {"ring": 10_000, "zmq": 4_000}),
    "throughput_200b": ("stream", 200, {"ring": 300_000, "zmq": 40_000}),
    "throughput_200kb": ("stream", 200_000, {"ring": 6_000, "zmq": 3_000}),
}


class Setup(msgspec.Struct, frozen=True):
    """What the peer attaches to: the files of the rings there and back, and a folder for sockets."""

    there: list[int]
    back: list[int]
    capacity: int
    folder: str


class Report(msgspec.Struct, frozen=True):
    """What the peer says about a round."""

    checksum: int
    cpu_s: float


class Round(msgspec.Struct, frozen=True):
    """What one round gave; CPU time is that of both processes. `p50_us`, `p99_us`: ping-pong only."""

    messages_per_s: float
    cpu_us_per_message: float
    p50_us: float
    p99_us: float


class Rig:
    """Makes the ports of one process; the peer's directions are swapped."""

    def __init__(self, setup: Setup, *, peer: bool) -> None:
        rings = [RingFiles.from_fds(fds, setup.capacity, 1) for fds in (setup.there, setup.back)]
        paths = [str(Path(setup.folder) / name) for name in ("there", "back")]
        self._rings = rings[::-1] if peer else rings
        self._paths = paths[::-1] if peer else paths

    def port(self, job: Job) -> Port:
        """Return a new port for `job`."""
        if job.transport == "ring":
            return RingPort(*self._rings)
        return ZmqPort(*self._paths, job.size_bytes)

    def close(self) -> None:
        """Close the files of the rings."""
        for ring in self._rings:
            ring.close()


class Peer:
    """The other process: it takes jobs on its stdin and reports on its stdout, a JSON line each."""

    def __init__(self, setup: Setup) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tokenspeed_tools.bench_ring", msgspec.json.encode(setup).decode()],
            pass_fds=setup.there + setup.back,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def say(self, line: bytes) -> None:
        """Send one line."""
        assert self._process.stdin is not None
        self._process.stdin.write(line + b"\n")
        self._process.stdin.flush()

    def hear(self) -> bytes:
        """Return its next line."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"the peer process ended with status {self._process.wait()}")
        return line

    def close(self) -> None:
        """End the process."""
        self._process.communicate(timeout=10)


def serve(setup: Setup) -> None:
    """Be the peer."""
    rig = Rig(setup, peer=True)
    for line in sys.stdin.buffer:
        uvloop.run(_serve_job(rig, msgspec.json.decode(line, type=Job)))
    rig.close()


async def _serve_job(rig: Rig, job: Job) -> None:
    port = rig.port(job)
    print("ready", flush=True)
    begin = cpu_s()
    checksum = await follow(port, job)
    report = Report(checksum, cpu_s() - begin)
    print(msgspec.json.encode(report).decode(), flush=True)
    sys.stdin.buffer.readline()  # the other side has what it waited for
    port.close()


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


def cpu_s() -> float:
    """CPU time of this process so far: all threads, user and system."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def measure(rig: Rig, peer: Peer) -> dict[str, dict[str, list[Round]]]:
    """Return the rounds of each test and transport."""
    rounds: dict[str, dict[str, list[Round]]] = {name: {kind: [] for kind in TRANSPORTS} for name in TESTS}
    for number in range(ROUNDS):
        for name, (test, size_bytes, messages) in TESTS.items():
            for kind in TRANSPORTS:
                job = Job(kind, test, size_bytes, messages[kind], warmup=messages[kind] // 20)
                result = uvloop.run(run_round(rig, peer, job))
                rounds[name][kind].append(result)
                print(f"round {number + 1}/{ROUNDS} {name} {kind}: {result}", file=sys.stderr, flush=True)
    return rounds


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
    return line | _machine()


def _machine() -> dict[str, Any]:
    git = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return {
        "rounds": ROUNDS,
        "commit": git.stdout.strip(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "python": platform.python_version(),
        "pyzmq": zmq.__version__,
        "libzmq": zmq.zmq_version(),
    }


def main() -> None:
    """Run the benchmark, or be its peer process."""
    if len(sys.argv) > 1:
        serve(msgspec.json.decode(sys.argv[1], type=Setup))
        return
    with tempfile.TemporaryDirectory(prefix="bench-ring-") as folder:
        there, back = (create_ring(IN_FLIGHT_BYTES, epoch=1) for _ in range(2))
        setup = Setup(there.fds(), back.fds(), there.capacity, folder)
        rig, peer = Rig(setup, peer=False), Peer(setup)
        rounds = measure(rig, peer)
        peer.close()
        rig.close()
    print(json.dumps(summary(rounds)))


if __name__ == "__main__":
    main()
