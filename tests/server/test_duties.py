from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server.sockets import short_folder
from tokenspeed.config import ServiceManager, child_environment, service_manager
from tokenspeed.server.duties import Notifier, adopts_orphans


@pytest.fixture
def folder() -> Iterator[Path]:
    with short_folder() as path:
        yield path


def listener(address: str) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    sock.bind(f"\0{address[1:]}" if address.startswith("@") else address)
    sock.settimeout(2.0)
    return sock


def heard(sock: socket.socket) -> list[str]:
    return sock.recv(4096).decode().split("\n")


@pytest.mark.parametrize("abstract", [False, True])
def test_the_news_reach_the_manager(folder: Path, abstract: bool) -> None:
    address = f"@tokenspeed-test-{os.getpid()}" if abstract else str(folder / "notify")
    with listener(address) as sock:
        notifier = Notifier(ServiceManager(address, 0.5))
        assert notifier.pause_s == 0.25
        notifier.loading()
        assert heard(sock) == ["STATUS=loading the model", "EXTEND_TIMEOUT_USEC=60000000", "WATCHDOG=1"]
        notifier.ready()
        assert heard(sock) == ["READY=1", "STATUS=ready"]
        notifier.serving(3)
        assert heard(sock) == ["STATUS=3 requests open", "WATCHDOG=1"]
        notifier.stopping()
        assert heard(sock) == ["STOPPING=1", "STATUS=draining"]
        Notifier(ServiceManager(address)).serving(0)
        assert heard(sock) == ["STATUS=0 requests open"]


def test_a_manager_that_is_gone_or_was_never_there_is_no_error(folder: Path) -> None:
    Notifier(ServiceManager(str(folder / "nobody"))).ready()
    Notifier(ServiceManager()).ready()


@pytest.mark.parametrize(
    ("limit", "pid", "watchdog_s"),
    [("3000000", "", 3.0), ("3000000", "{own}", 3.0), ("3000000", "1", None), ("0", "", None), ("soon", "", None)],
)
def test_what_systemd_says_is_read(
    monkeypatch: pytest.MonkeyPatch, limit: str, pid: str, watchdog_s: float | None
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", "@here")
    monkeypatch.setenv("WATCHDOG_USEC", limit)
    if pid:
        monkeypatch.setenv("WATCHDOG_PID", pid.format(own=os.getpid()))
    assert service_manager() == ServiceManager("@here", watchdog_s)
    assert "NOTIFY_SOCKET" not in child_environment([])


def test_without_systemd_there_is_no_manager(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"):
        monkeypatch.delenv(name, raising=False)
    assert service_manager() == ServiceManager("", None)


def test_orphans_are_reaped_and_own_children_are_left() -> None:
    code = (
        "import os, subprocess, sys, time\n"
        "from tokenspeed.server.duties import adopts_orphans, reap\n"
        "import ctypes\n"
        "assert not adopts_orphans() and reap([]) == 0\n"
        "ctypes.CDLL(None).prctl(36, 1)\n"
        "assert adopts_orphans()\n"
        "own = subprocess.Popen(['true'])\n"
        "os.waitid(os.P_PID, own.pid, os.WEXITED | os.WNOWAIT)\n"
        "assert reap([own.pid]) == 0 and own.wait() == 0\n"
        "subprocess.run(['sh', '-c', 'true & true &'])\n"
        "end, count = time.monotonic() + 5, 0\n"
        "while count < 2 and time.monotonic() < end: count += reap([own.pid])\n"
        "assert count == 2\n"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=30, check=False).returncode == 0
    assert not adopts_orphans()
