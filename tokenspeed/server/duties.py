"""What a server owes to whoever started it: systemd its news, a container its dead processes.

Owns the words to systemd (Type=notify, WatchdogSec=) and the reaping of orphans where this process is
the first one of a container. Neither exists elsewhere: then nothing is sent and nobody is waited for.

Invariant: a child that is somebody's here is never reaped in that one's stead.
"""

from __future__ import annotations

import ctypes
import os
import socket
from collections.abc import Collection

from tokenspeed.config import ServiceManager

PR_GET_CHILD_SUBREAPER = 37
INIT = 1
START_US = 60_000_000  # what a start that still goes on asks for more
PAUSE_S = 1.0


class Notifier:
    """Tells systemd; `manager` says where, and how often a sign of life is due."""

    def __init__(self, manager: ServiceManager) -> None:
        self._address = manager.address
        self._watched = manager.watchdog_s is not None
        self.pause_s = min(PAUSE_S, manager.watchdog_s / 2) if manager.watchdog_s else PAUSE_S

    def loading(self) -> None:
        """Ask for time; to be repeated while the model loads."""
        self._tell("STATUS=loading the model", f"EXTEND_TIMEOUT_USEC={START_US}", *self._alive())

    def ready(self) -> None:
        """Say once that requests are taken."""
        self._tell("READY=1", "STATUS=ready")

    def serving(self, requests_open: int) -> None:
        """Give a sign of life."""
        self._tell(f"STATUS={requests_open} requests open", *self._alive())

    def stopping(self) -> None:
        """Say once that the end has begun."""
        self._tell("STOPPING=1", "STATUS=draining")

    def _alive(self) -> tuple[str, ...]:
        return ("WATCHDOG=1",) if self._watched else ()

    def _tell(self, *lines: str) -> None:
        if not self._address:
            return
        # An abstract address begins with a zero byte, which the environment spells "@".
        address = f"\0{self._address[1:]}" if self._address.startswith("@") else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
                sock.setblocking(False)
                sock.sendto("\n".join(lines).encode(), address)
        except OSError:
            return  # a manager that does not listen cannot be told


def adopts_orphans() -> bool:
    """Tell whether orphaned processes become children of this one: it is process 1, or took them on."""
    asked = ctypes.c_int(0)
    ctypes.CDLL(None).prctl(PR_GET_CHILD_SUBREAPER, ctypes.byref(asked))
    return os.getpid() == INIT or bool(asked.value)


def reap(own: Collection[int]) -> int:
    """Reap ended children that are not in `own`; return how many.

    One of `own` that has ended hides those behind it until whoever started it has seen to it.
    """
    count = 0
    try:
        while ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            if ended.si_pid in own:
                break
            os.waitpid(ended.si_pid, os.WNOHANG)
            count += 1
    except ChildProcessError:
        pass
    return count
