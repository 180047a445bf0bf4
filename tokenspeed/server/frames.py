"""What is said on the Unix socket, and where that socket lies.

Owns the wire form, for both ends: a frame is a 4-byte big-endian length and that many bytes of
MessagePack. A connection carries one `Call`, which says the protocol that it speaks, and its answer:
either a `Reply` or a `Failure`, or `Chunk`s that end with `End` or a `Failure`. Closing the connection
cancels what was called.

Invariant: a socket lies in a folder that its owner alone can enter.
"""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from tokenspeed import __version__
from tokenspeed.config import runtime_dir
from tokenspeed.errors import StartError, UserError

PROTOCOL = 1  # goes up with each change that an older end would misread
LENGTH_BYTES = 4
FRAME_BYTES_MAX = 64 << 20
FOLDER_NAME = "api"  # beside the folders of the supervisors, which sweep their own
SOCKET_PATH_BYTES_MAX = 107


class Call(msgspec.Struct, frozen=True):
    """A request: the path of the HTTP API and its body as MessagePack.

    `request_id`, `traceparent` and `tracestate` are what the headers of these names are over HTTP.
    """

    path: str
    body: msgspec.Raw = msgspec.Raw(b"\x80")
    protocol: int = 1
    request_id: str = ""
    traceparent: str = ""
    tracestate: str = ""


def call_frame(path: str, body: Mapping[str, Any] | None) -> bytes:
    """Return a call of this version as a frame."""
    return frame({"path": path, "body": body or {}, "protocol": PROTOCOL})


def check_protocol(call: Call) -> None:
    """Raise `UserError` if `call` is of another protocol than this end speaks."""
    if call.protocol != PROTOCOL:
        raise UserError(
            f"The call speaks protocol {call.protocol} of the Unix socket, and this server, TokenSpeed {__version__}, "
            f"protocol {PROTOCOL}: take client and server from one version.",
            code="protocol_mismatch",
            param="protocol",
        )


class Reply(msgspec.Struct, frozen=True, tag_field="type", tag="reply"):
    """A whole answer."""

    status: int
    body: Any


class Chunk(msgspec.Struct, frozen=True, tag_field="type", tag="chunk"):
    """A piece of a streamed answer."""

    body: Any


class End(msgspec.Struct, frozen=True, tag_field="type", tag="end"):
    """The stream has ended well."""


class Failure(msgspec.Struct, frozen=True, tag_field="type", tag="failure"):
    """The call, or the rest of its stream, failed."""

    status: int
    code: str
    message: str
    param: str | None = None
    request_id: str = ""


Answer = Reply | Chunk | End | Failure


def frame(message: Any) -> bytes:
    """Return `message` as a frame."""
    body = msgspec.msgpack.encode(message)
    return len(body).to_bytes(LENGTH_BYTES, "big") + body


def socket_folder() -> Path:
    """Return the folder of this user's sockets."""
    return runtime_dir() / FOLDER_NAME


def socket_path(pid: int) -> Path:
    """Return where the server with process id `pid` listens."""
    return socket_folder() / f"{pid}.sock"


def running_sockets() -> list[Path]:
    """Return the sockets of this user's running servers, the newest first."""
    folder = socket_folder()
    try:
        check_private(folder)
        found = [(path.stat().st_mtime, path) for path in folder.glob("*.sock") if answers(path)]
    except (OSError, StartError):
        return []
    return [path for _, path in sorted(found, reverse=True)]


def answers(path: Path) -> bool:
    """Tell whether somebody listens at `path`."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except OSError:
            return False
        return True


def sweep(folder: Path) -> None:
    """Remove the sockets in `folder` whose process is gone.

    Both signs must agree: one that is being made does not answer yet, and one that is shared with
    another container has a process that cannot be seen here.
    """
    for path in folder.glob("*.sock"):
        if not Path("/proc", path.stem).exists() and not answers(path):
            path.unlink(missing_ok=True)


def private_folder(folder: Path) -> Path:
    """Make `folder` and its parent, entered by their owner alone; raise `StartError` if they are another's."""
    for part in (folder.parent, folder):
        try:
            part.mkdir(mode=0o700, parents=True, exist_ok=True)
            if part.lstat().st_uid == os.getuid() and not part.is_symlink():
                part.chmod(0o700)
        except OSError as error:
            raise StartError(
                f"{part} cannot be made ({error.strerror}); set XDG_RUNTIME_DIR to one of yours."
            ) from None
        check_private(part)
    return folder


def check_private(folder: Path) -> None:
    """Raise `StartError` unless `folder` is a real folder of this user that no other can enter."""
    seen = folder.lstat()
    if not stat.S_ISDIR(seen.st_mode) or seen.st_uid != os.getuid() or seen.st_mode & 0o077:
        raise StartError(
            f"{folder} belongs to uid {seen.st_uid} with mode {stat.S_IMODE(seen.st_mode):o}; it must be a folder of "
            f"uid {os.getuid()} with mode 700: remove it, or set XDG_RUNTIME_DIR."
        )
