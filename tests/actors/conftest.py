"""Every test here runs in its own runtime folder and must leave nothing behind."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvloop


def _children() -> set[str]:
    found = set()
    for task in Path("/proc/self/task").iterdir():
        try:
            found.update((task / "children").read_text().split())
        except FileNotFoundError:  # a thread that has ended meanwhile
            continue
    return found


def _descriptors() -> set[str]:
    found = set()
    for entry in os.listdir("/proc/self/fd"):
        try:
            found.add(f"{entry} {os.readlink(f'/proc/self/fd/{entry}')}")
        except FileNotFoundError:  # the descriptor that listed the folder
            continue
    return found


async def _nothing() -> None:
    return


@pytest.fixture(scope="session", autouse=True)
def loop_library() -> None:
    """Let libuv open the pipe that it keeps for the life of the process."""
    uvloop.run(_nothing())


@pytest.fixture
def runtime_base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder in which engines of this test make theirs."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return tmp_path / "tokenspeed"


@pytest.fixture(autouse=True)
def nothing_remains(runtime_base: Path) -> Iterator[None]:
    """Fail a test that leaves descriptors, segments, processes or folders."""
    descriptors, segments, children = _descriptors(), set(os.listdir("/dev/shm")), _children()
    yield
    assert _descriptors() - descriptors == set()
    for _ in range(20):  # an engine beside this test has names for a moment too
        remaining = {name for name in os.listdir("/dev/shm") if name.startswith("tokenspeed")} - segments
        if not remaining:
            break
        time.sleep(0.05)
    assert remaining == set()
    assert _children() - children == set()
    assert not runtime_base.exists() or os.listdir(runtime_base) == []
