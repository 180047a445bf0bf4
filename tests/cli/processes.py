"""Servers as processes, with the scripted engine in them."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from email.message import Message
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, NamedTuple

COMMAND = (sys.executable, "-m", "tests.cli.fake_cli")
ROOT = Path(__file__).resolve().parents[2]
WAIT_S = 10.0


class Server:
    """A running `serve` and what it has printed."""

    def __init__(self, folder: Path, scenario: str, *options: str) -> None:
        self.environment = environment(folder, scenario)
        self.process = subprocess.Popen(
            [*COMMAND, "serve", "--port", "0", *options],
            env=self.environment,
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._lines: list[str] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    @property
    def printed(self) -> str:
        """Everything on standard error so far."""
        return "".join(self._lines)

    @property
    def url(self) -> str:
        """The URL of the banner."""
        found = re.search(r"http://[\d.]+:\d+", self.until("http://"))
        assert found is not None
        return found[0]

    def until(self, words: str) -> str:
        """Wait until `words` were printed and return everything printed."""
        end_s = time.monotonic() + WAIT_S
        while words not in self.printed:
            assert time.monotonic() < end_s, f"no {words!r} in: {self.printed}"
            assert self.process.poll() is None or words in self.printed, self.printed
            time.sleep(0.005)
        return self.printed

    def signal(self, number: signal.Signals) -> None:
        """Send a signal."""
        self.process.send_signal(number)

    def exit_code(self) -> int:
        """Wait for the end and return its code."""
        code = self.process.wait(WAIT_S)
        self._reader.join(WAIT_S)
        return code

    def end(self) -> None:
        """Kill it if it is still there."""
        self.process.kill()
        self.process.wait()
        self._reader.join(WAIT_S)
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert pipe is not None
            pipe.close()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self._lines.append(line)


def environment(folder: Path, scenario: str) -> dict[str, str]:
    """Return the environment of a process that keeps its sockets in `folder`."""
    return {**os.environ, "XDG_RUNTIME_DIR": str(folder), "FAKE_SCENARIO": scenario}


@contextmanager
def serving(folder: Path, scenario: str = "hello", *options: str, ready: bool = True) -> Iterator[Server]:
    """Yield a server; with `ready` once it takes requests."""
    server = Server(folder, scenario, *options)
    try:
        if ready:
            server.until("ready in")
        yield server
    finally:
        server.end()


class Answer(NamedTuple):
    """What came back."""

    status: int
    headers: Message
    text: str

    def json(self) -> Any:
        """Return the body."""
        return json.loads(self.text)


def get(server: Server, path: str) -> Answer:
    """Send a GET."""
    return _send(server, "GET", path, None)


def ask(server: Server, **more: object) -> Answer:
    """Send a chat request."""
    body = {"messages": [{"role": "user", "content": "Hi"}], **more}
    return _send(server, "POST", "/v1/chat/completions", json.dumps(body).encode())


def _send(server: Server, method: str, path: str, body: bytes | None) -> Answer:
    connection = HTTPConnection(server.url.removeprefix("http://"), timeout=WAIT_S)
    try:
        connection.request(method, path, body)
        response = connection.getresponse()
        return Answer(response.status, response.headers, response.read().decode())
    finally:
        connection.close()
