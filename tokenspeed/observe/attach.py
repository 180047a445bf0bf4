"""The way into a running engine for tools: its topology and read-only descriptors of page and traces.

Whoever connects to the control socket is sent one packet, the topology as JSON with the descriptors
beside it, and the connection ends. Nothing is asked, so nothing that an outsider sends is read.

Invariant: descriptors come in the order of `Topology.descriptors`.
"""

from __future__ import annotations

import os
import socket
from array import array
from collections.abc import Mapping
from pathlib import Path

import msgspec

from tokenspeed.errors import UserError
from tokenspeed.ipc.trace import TraceReader
from tokenspeed.observe.page import StatusPage

PACKET_BYTES_MAX = 192 << 10
DESCRIPTORS_MAX = 253
STATUS_PAGE = "status"
TRACE = "trace:"  # before an actor's name: its trace buffer
PROTOCOL = 2  # goes up with each change that an older tool would misread


class ActorEntry(msgspec.Struct, frozen=True):
    """One actor: its process now, and its line in the status page."""

    name: str
    pid: int
    line: int


class EdgeEntry(msgspec.Struct, frozen=True):
    """One ring, and the epoch that it is in."""

    writer: str
    readers: tuple[str, ...]
    capacity_bytes: int
    epoch: int


class Topology(msgspec.Struct, frozen=True):
    """What an engine consists of. `descriptors` says what each descriptor is."""

    protocol: int
    pid: int
    version: str
    actors: tuple[ActorEntry, ...]
    edges: tuple[EdgeEntry, ...]
    descriptors: tuple[str, ...]


class Greeting(msgspec.Struct, frozen=True):
    """The part of every topology that says whether the rest can be read."""

    protocol: int = 0
    version: str = "of unknown version"


class Attachment:
    """A running engine seen from outside: its topology when it was asked; live, its status page and traces.

    `traces` has one reader for each actor, the engine's own included, by name.
    """

    def __init__(self, topology: Topology, page: StatusPage, traces: Mapping[str, TraceReader]) -> None:
        self.topology = topology
        self.page = page
        self.traces = traces

    def close(self) -> None:
        """Let go of the engine."""
        self.page.close()
        for trace in self.traces.values():
            trace.close()


def attach(path: Path) -> Attachment:
    """Connect to the control socket `path`. UserError if no engine answers there, or not to this user."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as end:
            end.settimeout(5.0)
            end.connect(str(path))
            room = socket.CMSG_SPACE(DESCRIPTORS_MAX * array("i").itemsize)
            data, ancillary, _, _ = end.recvmsg(PACKET_BYTES_MAX, room, socket.MSG_CMSG_CLOEXEC)
    except OSError as error:
        raise UserError(f"no engine answers at {path}: {error.strerror or error}; is it running?") from error
    if not data:
        raise UserError(f"the engine at {path} belongs to another user; ask as the user who started it")
    greeting = msgspec.json.decode(data, type=Greeting)
    if greeting.protocol != PROTOCOL:
        raise UserError(
            f"the engine at {path}, TokenSpeed {greeting.version}, speaks protocol {greeting.protocol} and this tool "
            f"protocol {PROTOCOL}: take both from one version"
        )
    topology = msgspec.json.decode(data, type=Topology)
    numbers = array("i", b"".join(rights for _, _, rights in ancillary))
    files = dict(zip(topology.descriptors, numbers, strict=True))
    page = StatusPage(files.pop(STATUS_PAGE), writable=False)
    return Attachment(topology, page, {name.removeprefix(TRACE): _trace(fd) for name, fd in files.items()})


def _trace(descriptor: int) -> TraceReader:
    try:
        return TraceReader(descriptor)
    finally:
        os.close(descriptor)
