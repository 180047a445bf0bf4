"""The GPU's kernels for a while, asked from the engine while its points are recorded.

Owns the call, which the engine answers when the time is over, and the file that it leaves. The profiler
slows the engine; points are the way to know by how much.

Invariant: the file is gone when its kernels were read.
"""

from __future__ import annotations

from pathlib import Path
from threading import Thread

from tokenspeed.client import Client
from tokenspeed.errors import TokenSpeedError
from tokenspeed.kernel_slices import KernelSlice, read_slices
from tokenspeed.server.frames import socket_path

PROFILE = "/profile"


class KernelCall(Thread):
    """Has the engine `pid` observe kernels for `seconds`; a thread that waits for the answer."""

    def __init__(self, pid: int, seconds: float) -> None:
        super().__init__(daemon=True, name="kernels")
        self._client = Client(socket_path(pid))
        self._seconds = seconds
        self._path: Path | None = None
        self._error: TokenSpeedError | None = None

    def run(self) -> None:
        """Ask, and wait."""
        try:
            self._path = Path(self._client.call(PROFILE, {"seconds": self._seconds})[1]["path"])
        except TokenSpeedError as error:
            self._error = error

    def check(self) -> None:
        """Raise what the engine refused it with, if it did."""
        if self._error is not None:
            raise self._error

    def take(self) -> tuple[KernelSlice, ...]:
        """Return the kernels, () if the engine has not answered yet; once."""
        if self._path is None:
            return ()
        found = tuple(read_slices(self._path))
        self._path.unlink()
        return found
