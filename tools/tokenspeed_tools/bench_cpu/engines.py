"""Engines that are measured: started one after the other, each given all threads, each stopped again.

Owns the child process and the wait until it answers. An engine is a command with `{model}` and
`{port}` in it; TokenSpeed's own are known by name.
"""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

START_LIMIT_S = 900.0
STOP_LIMIT_S = 20.0
SERVE = f"{shlex.quote(sys.executable)} -m tokenspeed.cli serve {{model}} --port {{port}} --device cpu"
OWN = {"tokenspeed": SERVE, "tokenspeed-float32": f"{SERVE} --dtype float32"}


@dataclass(frozen=True)
class Running:
    """An engine that answers at `url` as `model`, `ready_s` seconds after its start."""

    url: str
    model: str
    ready_s: float
    memory_mib: int


@contextmanager
def started(command: str, model: Path, log: Path) -> Iterator[Running]:
    """Start `command`, yield it once it answers, and stop it; what it prints goes to `log`."""
    port = _free_port()
    words = shlex.split(command.format(model=shlex.quote(str(model)), port=port))
    begin_s = time.perf_counter()
    with log.open("ab") as out:
        # A group of its own: an engine may have children.
        process = subprocess.Popen(words, stdout=out, stderr=out, start_new_session=True)
    try:
        url = f"http://127.0.0.1:{port}"
        name = _wait(url, process, log)
        yield Running(url, name, time.perf_counter() - begin_s, _memory_mib(process.pid))
    finally:
        _stop(process)


def _wait(url: str, process: subprocess.Popen[bytes], log: Path) -> str:
    """Return the model's name once the engine tells it and has written a token."""
    begin_s = time.perf_counter()
    while time.perf_counter() - begin_s < START_LIMIT_S:
        if process.poll() is not None:
            raise RuntimeError(f"it ended with status {process.returncode}; see {log}")
        try:
            name: str = httpx.get(f"{url}/v1/models", timeout=5.0).json()["data"][0]["id"]
            body = {"model": name, "messages": [{"role": "user", "content": "a"}], "max_tokens": 1}
            if httpx.post(f"{url}/v1/chat/completions", json=body, timeout=60.0).status_code == 200:
                return name
        except (httpx.HTTPError, ValueError, LookupError):
            pass
        time.sleep(0.2)
    raise RuntimeError(f"it does not answer after {START_LIMIT_S:.0f} s; see {log}")


def _stop(process: subprocess.Popen[bytes]) -> None:
    for blow in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, blow)
            process.wait(STOP_LIMIT_S)
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _memory_mib(group: int) -> int:
    """Return the resident memory of all processes of the session `group`, shared pages counted once each."""
    total = 0
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and os.getsid(int(entry.name)) == group:
                rows = (entry / "smaps_rollup").read_text().splitlines()
                total += sum(int(row.split()[1]) for row in rows if row.startswith("Pss:"))
        except OSError:
            continue
    return total // 1024
