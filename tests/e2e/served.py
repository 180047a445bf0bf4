"""`tokenspeed serve` as a child process, the way a user starts it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

START_LIMIT_S = 60.0
STOP_LIMIT_S = 10.0


class Server:
    """A running server: its process, its URL and what it printed."""

    def __init__(self, arguments: list[str]) -> None:
        command = [sys.executable, "-m", "tokenspeed.cli", "serve", "--port", "0", *arguments]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def url(self) -> str:
        """The base URL, from what the server printed."""
        found = re.search(r"http://[\d.]+:\d+", self.printed)
        assert found, f"no URL in: {self.printed}"
        return found.group()

    @property
    def printed(self) -> str:
        """Everything on stderr so far."""
        return "".join(self.lines)

    def wait_ready(self) -> float:
        """Return the seconds until /ready answered 200."""
        begin = time.monotonic()
        while time.monotonic() - begin < START_LIMIT_S:
            assert self.process.poll() is None, self.printed
            try:
                if httpx.get(f"{self.url}/ready").status_code == 200:
                    return time.monotonic() - begin
            except (AssertionError, httpx.TransportError):
                pass
            time.sleep(0.02)
        raise AssertionError(f"not ready: {self.printed}")

    def stop(self, blow: signal.Signals = signal.SIGTERM) -> int:
        """Signal the server and return its exit status."""
        if self.process.poll() is None:
            os.kill(self.process.pid, blow)
        try:
            return self.process.wait(STOP_LIMIT_S)
        finally:
            self.process.kill()
            self._reader.join(STOP_LIMIT_S)
            assert self.process.stderr is not None
            self.process.stderr.close()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line)


@contextmanager
def serving(model: Path, *arguments: str) -> Iterator[Server]:
    """Yield a ready server of `model`; it is stopped at the end whatever happened."""
    server = Server([str(model), *arguments])
    try:
        server.wait_ready()
        yield server
    finally:
        server.stop()
