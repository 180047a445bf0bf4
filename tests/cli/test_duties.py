"""What a server owes to a container and to systemd, as a whole process."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.processes import COMMAND, ROOT, environment, get, serving

NAMESPACE = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
# Becomes the server after leaving an orphan behind, which ends a moment later.
WITH_ORPHAN = '(sleep 1 &) ; exec "$0" "$@"'


def eventually(true: Callable[[], bool]) -> bool:
    end_s = time.monotonic() + 5.0
    while not true() and time.monotonic() < end_s:
        time.sleep(0.02)
    return true()


def children(pid: int) -> list[tuple[int, str]]:
    """Return (pid, state) of every child of `pid`."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            head, _, rest = stat.read_text().rpartition(") ")
        except OSError:
            continue
        state, parent = rest.split()[:2]
        if int(parent) == pid:
            found.append((int(head.split()[0]), state))
    return found


def may_unshare() -> bool:
    return subprocess.run([*NAMESPACE, "true"], capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(not may_unshare(), reason="no process namespaces for this user")
def test_as_process_1_it_buries_orphans_and_hears_signals(runtime: Path) -> None:
    command = [*NAMESPACE, "sh", "-c", WITH_ORPHAN, *COMMAND, "serve", "--no-http", "--log-level", "info"]
    with subprocess.Popen(
        command, cwd=ROOT, env=environment(runtime, "hello"), stderr=subprocess.PIPE, text=True
    ) as outside:
        try:
            assert outside.stderr is not None
            assert any("ready in" in line for line in outside.stderr)
            ((server, _),) = children(outside.pid)
            assert eventually(lambda: children(server) == [])
            os.kill(server, signal.SIGTERM)
            assert outside.wait(10.0) == 0
        finally:
            outside.kill()


@pytest.mark.skipif(not may_unshare(), reason="no process namespaces for this user")
def test_as_process_1_it_hears_signals_before_it_serves(runtime: Path) -> None:
    """The kernel drops a signal that process 1 has no handler for."""
    code = "import os, signal; from tokenspeed.cli import serve; serve._main = lambda *_: os.kill(1, signal.SIGTERM)"
    script = f"{code}; serve.main([])"
    done = subprocess.run([*NAMESPACE, sys.executable, "-c", script], cwd=ROOT, timeout=30, check=False)
    assert done.returncode == 128 + signal.SIGTERM


def test_systemd_is_told_from_start_to_end(runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(runtime / "notify"))
        manager.settimeout(10.0)
        monkeypatch.setenv("NOTIFY_SOCKET", str(runtime / "notify"))
        monkeypatch.setenv("WATCHDOG_USEC", "100000")
        told: list[str] = []

        def until(word: str) -> None:
            while word not in told:
                told.extend(manager.recv(4096).decode().split("\n"))

        with serving(runtime, "hello") as server:
            until("READY=1")
            assert told[0] == "STATUS=loading the model"
            told.clear()
            until("WATCHDOG=1")
            assert "STATUS=0 requests open" in told
            assert get(server, "/ready").status == 200
            server.signal(signal.SIGTERM)
            until("STOPPING=1")
            assert server.exit_code() == 0
