"""Segments: made without a trace, with all their memory, or refused with a reason."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import subprocess
import sys
from pathlib import Path

import posix_ipc
import pytest

from tests.ipc.helpers import open_descriptors
from tokenspeed.errors import StartError
from tokenspeed.ipc import segment
from tokenspeed.ipc.segment import create_segment, sweep

PREFIX = f"test-tokenspeed-{os.getpid()}x"


def test_a_segment_has_its_memory_and_no_name() -> None:
    before = set(os.listdir("/dev/shm"))
    fd = create_segment(10_000, PREFIX)
    info = os.fstat(fd)
    assert info.st_size == 10_000
    assert info.st_blocks * 512 >= 10_000
    assert info.st_mode & 0o777 == 0o600
    assert info.st_nlink == 0
    assert fcntl.fcntl(fd, fcntl.F_GETFD) & fcntl.FD_CLOEXEC
    assert {name for name in set(os.listdir("/dev/shm")) - before if name.startswith(PREFIX)} == set()
    os.close(fd)


def _refuse(monkeypatch: pytest.MonkeyPatch, times: int, code: int = errno.ENOSPC) -> None:
    real = os.posix_fallocate
    left = [times]

    def fallocate(fd: int, offset: int, length: int) -> None:
        left[0] -= 1
        if left[0] >= 0:
            raise OSError(code, os.strerror(code))
        real(fd, offset, length)

    monkeypatch.setattr(os, "posix_fallocate", fallocate)


def test_a_full_shm_falls_back_to_an_anonymous_file(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    _refuse(monkeypatch, 1)
    with caplog.at_level(logging.WARNING):
        fd = create_segment(2 << 20, PREFIX)
    assert "/dev/shm cannot give 2.0 MiB (No space left on device;" in caplog.text
    assert os.fstat(fd).st_size == 2 << 20
    with pytest.raises(OSError, match="not permitted"):
        os.ftruncate(fd, 0)  # sealed: nobody can make a reader's mapping end early
    os.close(fd)


def test_no_memory_at_all_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    before = open_descriptors()
    _refuse(monkeypatch, 2)
    with pytest.raises(StartError) as raised:
        create_segment(3 << 20, PREFIX)
    message = raised.value.message
    for part in ("cannot give 3.0 MiB", "No space left on device", "MiB are free", "--shm-size", "remount"):
        assert part in message
    assert open_descriptors() == before


def test_a_missing_shm_falls_back(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))

    monkeypatch.setattr(posix_ipc, "SharedMemory", refuse)
    monkeypatch.setattr(segment, "SHM_FOLDER", tmp_path / "missing")
    fd = create_segment(4096, PREFIX)
    assert os.fstat(fd).st_size == 4096
    os.close(fd)
    assert sweep(PREFIX) == []


@pytest.mark.parametrize("prepare", ["mount -t tmpfs -o size=64k tmpfs /dev/shm", "mount -t tmpfs tmpfs /dev"])
def test_in_a_real_container_with_a_tiny_shm(prepare: str) -> None:
    program = (
        "import os, tokenspeed.ipc.ring as r\n"
        "f = r.create_ring(1 << 20, 1); w, d = r.RingWriter(f), r.RingReader(f)\n"
        "w.try_send(bytes(300000)); print(len(d.receive()), end='', flush=True); os._exit(0)"
    )
    inside = f"{prepare} && exec {sys.executable} -c '{program.replace(chr(39), chr(34))}'"
    result = subprocess.run(
        ["unshare", "--mount", "sh", "-c", inside], capture_output=True, text=True, timeout=30, check=False
    )
    if "unshare failed" in result.stderr or "permission denied" in result.stderr:
        pytest.skip("needs the right to mount")
    assert result.stdout == "300000", result.stderr


def _leave(name: str) -> None:
    posix_ipc.SharedMemory(f"/{name}", posix_ipc.O_CREX, size=4096, mode=0o600).close_fd()


def test_sweep_removes_what_the_dead_left() -> None:
    child = subprocess.Popen(["true"])
    child.wait()
    dead, own, alive, odd = (f"{PREFIX}-{tail}" for tail in (f"{child.pid}-0", f"{os.getpid()}-3", "1-0", "x-0"))
    try:
        for name in (dead, own, alive, odd):
            _leave(name)
        assert sorted(sweep(PREFIX)) == sorted([dead, own])
        assert Path("/dev/shm", alive).exists()
        assert Path("/dev/shm", odd).exists()
        assert sweep(PREFIX) == []
    finally:
        for path in Path("/dev/shm").glob(f"{PREFIX}-*"):
            path.unlink()
