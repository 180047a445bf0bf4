"""What this process may take of the machine: memory and cores, a container's limits included.

Owns the questions to the kernel: what is available, and the limits of the control groups (versions 1
and 2) that this process is in, each of which has a say. What is needed is not known here. `root` is
the root of the file system.

Invariant: what cannot be asked counts as no limit; nothing is reserved.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

ROOT = Path("/")
GROUPS = Path("sys/fs/cgroup")
# Version 1 says "no limit" by a number near 2**63.
UNLIMITED_BYTES = 1 << 60


def memory_available_bytes(root: Path = ROOT) -> int | None:
    """Return the bytes that may be taken now; None if the system does not tell.

    The machine's own figure, or what a control group has left if that is less. Pages of files that
    nobody has used for a while count as free: the kernel drops them first.
    """
    room = [limit - used for limit, used in _memory(root)]
    if (free := _from_lines(root / "proc/meminfo", "MemAvailable:")) is not None:
        room.append(free * 1024)
    return max(0, min(room)) if room else None


def memory_limit_bytes(root: Path = ROOT) -> int | None:
    """Return the least limit of a control group, None without one."""
    return min((limit for limit, _ in _memory(root)), default=None)


def core_limit(root: Path = ROOT) -> float | None:
    """Return the cores' worth of time that the control groups allow, None without a limit."""
    quotas = [_read_quota(folder / "cpu.max") for folder in _folders(root, "")]
    for controller in ("cpu", "cpu,cpuacct"):
        for folder in _folders(root, controller):
            quota, period = (_number(folder / f"cpu.cfs_{name}_us") for name in ("quota", "period"))
            quotas.append(quota / period if quota is not None and quota > 0 and period else None)
    return min((quota for quota in quotas if quota is not None), default=None)


def cores(root: Path = ROOT) -> int:
    """Return how many threads can run at once: the cores allowed, and whole cores of the time allowed.

    One thread more than that, and all of them stand still together at the end of each period.
    """
    allowed = len(os.sched_getaffinity(0))
    limit = core_limit(root)
    return allowed if limit is None else max(1, min(allowed, int(limit)))


def _memory(root: Path) -> Iterator[tuple[int, int]]:
    """Yield (limit, used) of every control group with a limit."""
    kinds = (
        ("", "memory.max", "memory.current", "inactive_file"),
        ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    )
    for controller, limit_file, used_file, idle in kinds:
        for folder in _folders(root, controller):
            limit, used = _number(folder / limit_file), _number(folder / used_file)
            if limit is not None and limit < UNLIMITED_BYTES:
                yield limit, (used or 0) - (_from_lines(folder / "memory.stat", idle) or 0)


def _folders(root: Path, controller: str) -> Iterator[Path]:
    """Yield the folders of this process's group and of those around it; `controller` "" is version 2.

    In a container the path may be the host's, of which nothing but the top is seen.
    """
    top = root / GROUPS / controller
    yield top
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for _, controllers, path in (line.split(":", 2) for line in lines if line.count(":") >= 2):
        if controllers == controller or (controller and controller in controllers.split(",")):
            place = top
            for part in path.strip("/").split("/"):
                if part and part != "..":
                    place /= part
                    yield place


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):  # no such group, or "max"
        return None


def _read_quota(path: Path) -> float | None:
    try:
        quota, period = map(int, path.read_text().split())
        return quota / period
    except (OSError, ValueError, ZeroDivisionError):
        return None


def _from_lines(path: Path, name: str) -> int | None:
    """Return the number behind `name` in a file of names and numbers."""
    try:
        return next((int(line.split()[1]) for line in path.read_text().splitlines() if line.startswith(name)), None)
    except (OSError, ValueError, IndexError):
        return None
