"""Shared memory that only its descriptors keep alive.

Owns how a segment comes into being (and the sweep of names that a killed process left behind). It
does not know what is stored there. A segment is made under a name with mode 0600, loses the name at
once, and has all its pages from the start, so that a full /dev/shm is an error now and not a SIGBUS
later. Where /dev/shm is missing or full, an anonymous memory file takes its place.

Invariant: no name of ours outlives the call that made it, unless the process died in between.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import itertools
import logging
import os
from pathlib import Path

import posix_ipc

from tokenspeed.errors import StartError

PREFIX = "tokenspeed"
SHM_FOLDER = Path("/dev/shm")

_log = logging.getLogger(__name__)
_counter = itertools.count()


def create_segment(size_bytes: int, prefix: str = PREFIX) -> int:
    """Return the descriptor of a new segment of zeroes; the caller closes it.

    Raises `StartError` when neither /dev/shm nor an anonymous memory file has `size_bytes`.
    """
    try:
        return _create_named(size_bytes, prefix)
    except OSError as error:
        seen = f"{SHM_FOLDER} cannot give {_mib(size_bytes)} ({_reason(error)}; {_free()})"
    try:
        fd = _create_anonymous(size_bytes, prefix)
    except OSError as error:
        raise StartError(
            f"no shared memory: {seen}; an anonymous memory file neither ({_reason(error)}). Make room in"
            f" {SHM_FOLDER}, enlarge it (containers: --shm-size=1g; else: mount -o remount,size=1g {SHM_FOLDER}),"
            " or free memory"
        ) from error
    _log.warning("%s: using an anonymous memory file instead", seen)
    return fd


def sweep(prefix: str = PREFIX) -> list[str]:
    """Remove this user's named segments whose maker is dead, and return their names.

    Call it before the first segment is made: a name that carries our own process id is then from an
    older boot that had the same one.
    """
    removed = []
    for path in SHM_FOLDER.glob(f"{prefix}-*-*"):
        if _is_left_over(path, prefix):
            try:
                posix_ipc.unlink_shared_memory(f"/{path.name}")
            except posix_ipc.ExistentialError:
                continue  # its maker, or another sweep, was faster
            removed.append(path.name)
    return removed


def _create_named(size_bytes: int, prefix: str) -> int:
    name = f"/{prefix}-{os.getpid()}-{next(_counter)}"
    try:
        memory = posix_ipc.SharedMemory(name, posix_ipc.O_CREX, mode=0o600)
    except posix_ipc.ExistentialError as error:
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), name) from error
    except posix_ipc.PermissionsError as error:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), name) from error
    with contextlib.suppress(posix_ipc.ExistentialError):  # swept by someone who cannot see that we live
        posix_ipc.unlink_shared_memory(name)
    return _filled(memory.fd, size_bytes)


def _create_anonymous(size_bytes: int, prefix: str) -> int:
    fd = _filled(os.memfd_create(prefix, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING), size_bytes)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    return fd


def _filled(fd: int, size_bytes: int) -> int:
    """Give `fd` its pages; close it when there are not enough."""
    try:
        os.posix_fallocate(fd, 0, size_bytes)
    except OSError:
        os.close(fd)
        raise
    return fd


def _is_left_over(path: Path, prefix: str) -> bool:
    pid, _, number = path.name.removeprefix(f"{prefix}-").partition("-")
    if not (pid.isdecimal() and number.isdecimal()):
        return False
    try:
        mine = path.stat().st_uid == os.getuid()
    except FileNotFoundError:
        return False
    return mine and (int(pid) == os.getpid() or not Path(f"/proc/{pid}").exists())


def _reason(error: OSError) -> str:
    return error.strerror or str(error)


def _free() -> str:
    try:
        info = os.statvfs(SHM_FOLDER)
    except OSError as error:
        return _reason(error)
    return f"{_mib(info.f_bavail * info.f_frsize)} of {_mib(info.f_blocks * info.f_frsize)} are free"


def _mib(size_bytes: int) -> str:
    return f"{size_bytes / (1 << 20):.1f} MiB"
