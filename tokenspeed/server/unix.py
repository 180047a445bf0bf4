"""The Unix socket and the connections on it.

Owns the socket file. A connection carries one call; its end cancels what the call asked for. Peers
of another user are turned away before a byte of theirs is read. What a call means is not known here.

Invariant: while the door is open its socket has mode 0600, and no socket file stays behind it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
from pathlib import Path
from typing import Any

from tokenspeed.errors import StartError, TokenSpeedError, UserError
from tokenspeed.server.calls import Calls, failure
from tokenspeed.server.disconnect import ClientGone, unless_gone
from tokenspeed.server.frames import (
    LENGTH_BYTES,
    SOCKET_PATH_BYTES_MAX,
    Call,
    answers,
    check_protocol,
    frame,
    private_folder,
    socket_path,
    sweep,
)
from tokenspeed.server.parse import decode_msgpack

FLUSH_S_MAX = 1.0
PEER = struct.Struct("3i")  # struct ucred: pid, uid, gid


def bind_unix(path: str | None) -> tuple[socket.socket, Path]:
    """Return a listening socket of mode 0600 and where it lies: at `path`, else in the runtime folder."""
    place = Path(path) if path else socket_path(os.getpid())
    if len(os.fsencode(place)) > SOCKET_PATH_BYTES_MAX:
        raise StartError(f"The path {place} is longer than {SOCKET_PATH_BYTES_MAX} bytes; give a shorter --socket.")
    if not path:
        sweep(private_folder(place.parent))
    _remove_stale(place)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.bind(str(place))
        place.chmod(0o600)
        sock.listen()
    except OSError as error:
        sock.close()
        raise StartError(f"{place} cannot be bound: {error.strerror}; give another --socket.") from None
    sock.setblocking(False)
    return sock, place


class UnixDoor:
    """Serves `calls` on `sock`, which is bound at `path`; larger frames than `bytes_max` are refused."""

    def __init__(self, calls: Calls, sock: socket.socket, path: Path, bytes_max: int) -> None:
        self._calls = calls
        self._sock = sock
        self._path = path
        self._bytes_max = bytes_max
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.Task[Any]] = set()

    async def start(self) -> None:
        """Take connections from now on."""
        self._server = await asyncio.start_unix_server(self._connected, sock=self._sock)

    async def stop(self, *, at_once: bool = False) -> None:
        """Take no more, let answers flush for a moment (not with `at_once`), remove the socket file."""
        if self._server is not None:
            self._server.close()
        if self._open and not at_once:
            await asyncio.wait(self._open, timeout=FLUSH_S_MAX)
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)
        self._sock.close()
        with contextlib.suppress(OSError):
            self._path.unlink()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        try:
            await self._serve(reader, writer)
        except (ClientGone, OSError, EOFError):
            pass
        finally:
            self._open.discard(task)
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async def send(message: Any) -> None:
            writer.write(frame(message))
            await writer.drain()

        try:
            _check_peer(writer)
            call = decode_msgpack(await self._read(reader), Call)
            check_protocol(call)
        except TokenSpeedError as error:
            await send(failure(error))
        else:
            await unless_gone(self._calls.answer(call, send), _until_closed(reader))

    async def _read(self, reader: asyncio.StreamReader) -> bytes:
        size = int.from_bytes(await reader.readexactly(LENGTH_BYTES), "big")
        if size > self._bytes_max:
            raise UserError(
                f"The frame has {size} bytes; at most {self._bytes_max} are allowed (--max-request-bytes).",
                status=413,
                code="request_too_large",
            )
        return await reader.readexactly(size)


def _remove_stale(place: Path) -> None:
    if not place.is_socket():
        return
    if answers(place):
        raise StartError(f"Another server listens at {place}; stop it or give another --socket.")
    place.unlink()


def _check_peer(writer: asyncio.StreamWriter) -> None:
    """Raise `UserError` unless the peer is this user or root."""
    raw = writer.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, PEER.size)
    _, uid, _ = PEER.unpack(raw)
    if uid not in (os.getuid(), 0):
        raise UserError(f"The socket is for uid {os.getuid()}; the caller has uid {uid}.", status=403, code="forbidden")


async def _until_closed(reader: asyncio.StreamReader) -> None:
    while await reader.read(4096):
        pass
