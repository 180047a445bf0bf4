"""The two processes: what they share, and how the near one orders the far one about.

Owns the peer process and its protocol: jobs on its stdin, answers on its stdout, a JSON line each.
Both processes make fresh ports for each job; the rings and socket paths below them stay.

Invariant: the peer ends when its stdin does.
"""

from __future__ import annotations

import resource
import subprocess
import sys

import msgspec
import uvloop

from tokenspeed.config import child_environment
from tokenspeed.ipc.ring import RingFiles
from tokenspeed_tools.bench_ring.exchange import Job, follow
from tokenspeed_tools.bench_ring.ports import Port, RingPort, ZmqPort

PEER_FLAG = "--peer"
EPOCH = 7


class Setup(msgspec.Struct, frozen=True):
    """What the peer attaches to, named from the near side: files of the rings, paths of the sockets."""

    there_fds: list[int]
    back_fds: list[int]
    capacity: int
    there_path: str
    back_path: str


class Report(msgspec.Struct, frozen=True):
    """What the peer says about a round."""

    checksum: int
    cpu_s: float


class Rig:
    """Makes the ports of one process from the rings out and back, and from paths for sockets."""

    def __init__(self, rings: tuple[RingFiles, RingFiles], paths: tuple[str, str]) -> None:
        self._rings = rings
        self._paths = paths

    def port(self, job: Job) -> Port:
        """Return a new port for `job`."""
        if job.transport == "ring":
            return RingPort(*self._rings)
        return ZmqPort(*self._paths, job.size_bytes)


class Peer:
    """The other process: it takes jobs on its stdin and reports on its stdout, a JSON line each."""

    def __init__(self, setup: Setup) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tokenspeed_tools.bench_ring", PEER_FLAG, msgspec.json.encode(setup).decode()],
            pass_fds=setup.there_fds + setup.back_fds,
            env=child_environment(sys.path),
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
    back = RingFiles.from_fds(setup.back_fds, setup.capacity, EPOCH)
    there = RingFiles.from_fds(setup.there_fds, setup.capacity, EPOCH)
    rig = Rig((back, there), (setup.back_path, setup.there_path))
    for line in sys.stdin.buffer:
        uvloop.run(_serve_job(rig, msgspec.json.decode(line, type=Job)))
    there.close()
    back.close()


async def _serve_job(rig: Rig, job: Job) -> None:
    port = rig.port(job)
    print("ready", flush=True)
    begin = cpu_s()
    checksum = await follow(port, job)
    report = Report(checksum, cpu_s() - begin)
    print(msgspec.json.encode(report).decode(), flush=True)
    sys.stdin.buffer.readline()  # the other side has what it waited for
    port.close()


def cpu_s() -> float:
    """CPU time of this process so far: all threads, user and system."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
