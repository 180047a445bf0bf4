"""The folder of one running engine, `<runtime dir>/<pid>`, and the sweep of those left behind.

Owns the folder from `RunFolder.create` to `remove`: mode 0700, so that what lies in it is for this
user alone. A folder is left behind if its process is gone and nobody answers at its socket (the
second question is for containers that share the folder but not the process ids).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import stat
from pathlib import Path

from tokenspeed.errors import StartError

SOCKET_NAME = "control.sock"
SOCKET_PATH_MAX = 107  # sun_path less its final zero


class RunFolder:
    """The folder of this engine."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, base: Path) -> RunFolder:
        """Sweep `base`, then make this engine's folder in it. StartError if it cannot be made safely."""
        try:
            _make_private(base)
            sweep(base)
            return cls(_make_own(base))
        except OSError as error:
            raise StartError(f"{base}: {error.strerror}; set XDG_RUNTIME_DIR to a folder of your own") from error

    @property
    def socket_path(self) -> Path:
        """Return where the control socket is."""
        return self.path / SOCKET_NAME

    def remove(self) -> None:
        """Remove the folder and what is in it."""
        shutil.rmtree(self.path, ignore_errors=True)


def sweep(base: Path) -> list[Path]:
    """Remove the folders in `base` whose engine is gone, and return them."""
    stale = [entry for entry in base.iterdir() if entry.is_dir() and _is_stale(entry)]
    for entry in stale:
        shutil.rmtree(entry, ignore_errors=True)
    return stale


def _make_private(base: Path) -> None:
    base.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = base.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise StartError(f"{base} is not a folder of user {os.geteuid()}; remove it or set XDG_RUNTIME_DIR")
    if found.st_mode & 0o077:
        base.chmod(0o700)


def _make_own(base: Path) -> Path:
    """Several engines in one process get `<pid>`, `<pid>.1`, and so on."""
    count = 0
    while True:
        path = base / (f"{os.getpid()}.{count}" if count else f"{os.getpid()}")
        if len(os.fsencode(path / SOCKET_NAME)) > SOCKET_PATH_MAX:
            raise StartError(f"{path / SOCKET_NAME} is too long for a socket; set XDG_RUNTIME_DIR to a shorter path")
        with contextlib.suppress(FileExistsError):
            path.mkdir(mode=0o700)
            return path
        count += 1


def _is_stale(folder: Path) -> bool:
    owner = folder.name.partition(".")[0]
    if not owner.isdigit() or _answers(folder / SOCKET_NAME):
        return False
    return int(owner) == os.getpid() or not Path(f"/proc/{owner}").exists()


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as probe:
        probe.setblocking(False)
        try:
            probe.connect(str(path))
        except BlockingIOError:
            return True  # its queue is full: somebody lives there
        except OSError:
            return False
        return True
