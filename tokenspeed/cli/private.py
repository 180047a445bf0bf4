"""A server of one's own: a child process on a socket that nobody else finds.

Owns the child from start to end. Its standard input is a pipe: when this process ends, however it
ends, the pipe closes and the child stops. It runs in a session of its own, so that Ctrl-C in the
terminal is not for it.

Invariant: after `__exit__` neither process nor socket is left.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType

from tokenspeed.client import Client
from tokenspeed.errors import StartError, TokenSpeedError

COMMAND = (sys.executable, "-m", "tokenspeed.cli")
LOOK_S = 0.05
STOP_S_MAX = 10.0


class PrivateServer:
    """Starts `tokenspeed serve MODEL` without HTTP; entering it waits until it is ready."""

    def __init__(self, model: str | None) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="tokenspeed-"))
        self.path = self._folder / "api.sock"
        options = ["--no-http", "--quiet", "--stop-with-stdin", "--log-level", "warning", "--socket", str(self.path)]
        self._command = [*COMMAND, "serve", *options, *([model] if model is not None else [])]
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Path:
        """Return the socket's path once the server takes requests; raise `StartError` if it ends before."""
        print("Starting a model for this conversation ...", file=sys.stderr)
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=sys.stderr, start_new_session=True
        )
        try:
            while not self._is_ready():
                if (code := self._process.poll()) is not None:
                    raise StartError(f"The server ended with exit code {code} before it was ready; see above.")
                time.sleep(LOOK_S)
        except BaseException:
            self._stop()
            raise
        return self.path

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def _is_ready(self) -> bool:
        try:
            return self.path.exists() and Client(self.path, timeout_s=5.0).ready()
        except TokenSpeedError:
            return False

    def _stop(self) -> None:
        process = self._process
        assert process is not None
        assert process.stdin is not None
        process.stdin.close()
        try:
            process.wait(STOP_S_MAX)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)
