from __future__ import annotations

import os
from pathlib import Path

import pytest

from tokenspeed.machine import core_limit, cores, memory_available_bytes, memory_limit_bytes

GIB = 1 << 30


def lay(root: Path, files: dict[str, object]) -> Path:
    for name, text in {"proc/meminfo": f"MemTotal: 9 kB\nMemAvailable: {8 << 20} kB\n", **files}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"{text}\n")
    return root


def test_without_limits_the_machine_is_asked(tmp_path: Path) -> None:
    assert memory_available_bytes(tmp_path) is None
    assert core_limit(tmp_path) is None
    lay(tmp_path, {"sys/fs/cgroup/memory.max": "max", "sys/fs/cgroup/cpu.max": "max 100000"})
    assert memory_available_bytes(tmp_path) == 8 * GIB
    assert memory_limit_bytes(tmp_path) is None
    assert cores(tmp_path) == len(os.sched_getaffinity(0))


def test_version_2_in_a_container(tmp_path: Path) -> None:
    group = "sys/fs/cgroup"
    lay(
        tmp_path,
        {
            "proc/self/cgroup": "0::/",
            f"{group}/memory.max": 4 * GIB,
            f"{group}/memory.current": 3 * GIB,
            f"{group}/memory.stat": f"anon 5\ninactive_file {2 * GIB}\n",
            f"{group}/cpu.max": "150000 100000",
        },
    )
    assert memory_available_bytes(tmp_path) == 3 * GIB
    assert memory_limit_bytes(tmp_path) == 4 * GIB
    assert core_limit(tmp_path) == 1.5
    assert cores(tmp_path) == 1


def test_every_group_around_has_a_say(tmp_path: Path) -> None:
    outer = "sys/fs/cgroup/system.slice"
    lay(
        tmp_path,
        {
            "proc/self/cgroup": "0::/system.slice/serve.service",
            f"{outer}/memory.max": 2 * GIB,
            f"{outer}/memory.current": GIB,
            f"{outer}/cpu.max": "max 100000",
            f"{outer}/serve.service/memory.max": 6 * GIB,
            f"{outer}/serve.service/cpu.max": "50000 100000",
        },
    )
    assert memory_available_bytes(tmp_path) == GIB
    assert memory_limit_bytes(tmp_path) == 2 * GIB
    assert core_limit(tmp_path) == 0.5
    assert cores(tmp_path) == 1


def test_version_1(tmp_path: Path) -> None:
    group = "sys/fs/cgroup"
    lay(
        tmp_path,
        {
            "proc/self/cgroup": "5:memory:/docker/abc\n4:cpu,cpuacct:/docker/abc",
            f"{group}/memory/memory.limit_in_bytes": 9223372036854771712,
            f"{group}/memory/docker/abc/memory.limit_in_bytes": GIB,
            f"{group}/memory/docker/abc/memory.usage_in_bytes": 2 * GIB,
            f"{group}/cpu,cpuacct/docker/abc/cpu.cfs_quota_us": 200000,
            f"{group}/cpu,cpuacct/docker/abc/cpu.cfs_period_us": 100000,
            f"{group}/cpu,cpuacct/cpu.cfs_quota_us": -1,
            f"{group}/cpu,cpuacct/cpu.cfs_period_us": 100000,
        },
    )
    assert memory_available_bytes(tmp_path) == 0
    assert memory_limit_bytes(tmp_path) == GIB
    assert core_limit(tmp_path) == 2.0


@pytest.mark.parametrize("text", ["", "many", "1 0", "1"])
def test_what_cannot_be_read_is_no_limit(tmp_path: Path, text: str) -> None:
    lay(tmp_path, {"sys/fs/cgroup/cpu.max": text, "sys/fs/cgroup/memory.max": text, "proc/self/cgroup": "no"})
    assert core_limit(tmp_path) is None
    assert memory_available_bytes(tmp_path) in (8 * GIB, 1)
