"""The control socket: where tools of the same user get at the status page of a running engine.

Owns the listening socket (0600, in the engine's 0700 folder). Each connection is answered with one
packet, see `observe.attach`, and closed; nothing is read from it. The peer's user is asked from the
kernel besides, since a folder's mode can be changed by mistake.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
from array import array
from collections.abc import Callable
from pathlib import Path

import msgspec

from tokenspeed.observe.attach import Topology

CREDENTIALS = struct.Struct("3i")  # struct ucred: pid, uid, gid
BACKLOG = 16


class ControlDoor:
    """Listens at `path` while it is open, in the running event loop."""

    def __init__(self, path: Path, describe: Callable[[], tuple[Topology, list[int]]]) -> None:
        """`describe` returns the topology and its descriptors, which are closed here once sent."""
        self._describe = describe
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
        self._socket.bind(str(path))
        path.chmod(0o600)
        self._socket.listen(BACKLOG)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._socket.fileno(), self._on_connection)

    def close(self) -> None:
        """Stop listening."""
        self._loop.remove_reader(self._socket.fileno())
        self._socket.close()

    def _on_connection(self) -> None:
        with contextlib.suppress(OSError):  # a caller that went away, or does not take its packet
            peer, _ = self._socket.accept()
            with peer:
                peer.setblocking(False)
                if peer_user(peer) in (os.geteuid(), 0):
                    self._answer(peer)

    def _answer(self, peer: socket.socket) -> None:
        topology, descriptors = self._describe()
        try:
            rights = array("i", descriptors)
            peer.sendmsg(
                [msgspec.json.encode(topology)],
                [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)],
                socket.MSG_NOSIGNAL,
            )
        finally:
            for descriptor in descriptors:
                os.close(descriptor)


def peer_user(peer: socket.socket) -> int:
    """Return the user id of the process at the other end, as the kernel knows it."""
    credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
    return int(CREDENTIALS.unpack(credentials)[1])
