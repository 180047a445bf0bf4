"""What supervisor and actor tell each other, and the channel that carries it.

One Unix socket pair per life of an actor, of the kind that keeps message borders; descriptors ride
along with the message that needs them. Its end is also news: the other side is gone.

Invariant: messages of one direction arrive in the order in which they were sent, so what was said
before `Open` is done before the actor reads its first record.
"""

from __future__ import annotations

import socket
from array import array
from collections.abc import Sequence

import msgspec

from tokenspeed.errors import ErrorInfo

MESSAGE_BYTES_MAX = 192 << 10
DESCRIPTORS_MAX = 253  # the kernel's own bound for one message (SCM_MAX_FD)


class EdgeGrant(msgspec.Struct, array_like=True, frozen=True):
    """One end of a ring. Its `descriptors` come with the message, in the order of the grants.

    For a writer `peer` is the address that it sends to, for a reader the sender's name; `reader` is
    the reader's index, -1 for the writer. `edge` is the edge's place in the topology.
    """

    peer: str
    reader: int
    capacity_bytes: int
    epoch: int
    descriptors: int
    edge: int = 0


class Launch(msgspec.Struct, tag=True, array_like=True, frozen=True):
    """First message of a life: who the process is. The status page's descriptor comes first, then the trace's.

    `restarted` names the peers, with their epochs, that began new lives since its own edges were laid.
    """

    actor: str
    factory: str
    config_type: str
    config: bytes
    log_level: int
    log_form: str
    line: int
    grants: list[EdgeGrant]
    restarted: list[tuple[str, int]] = []


class Swap(msgspec.Struct, tag=True, array_like=True, frozen=True):
    """`restarted` begins a new life: these ends replace the old ones, whose records are gone."""

    serial: int
    restarted: str
    epoch: int
    grants: list[EdgeGrant]


class Open(msgspec.Struct, tag=True, array_like=True, frozen=True):
    """Answer to `Ready`: read the inboxes from now on."""


class Profile(msgspec.Struct, tag=True, array_like=True, frozen=True):
    """Observe the actor's kernels for `seconds` and write what was seen to `path`."""

    serial: int
    seconds: float
    path: str


class Stop(msgspec.Struct, tag=True, array_like=True, frozen=True):
    """End in good order."""


class Phase(msgspec.Struct, tag=True, array_like=True, frozen=True):
    """The actor began a phase."""

    text: str


class Ready(msgspec.Struct, tag=True, array_like=True, frozen=True):
    """The actor has started."""


class Swapped(msgspec.Struct, tag=True, array_like=True, frozen=True):
    """The swap with this serial is done."""

    serial: int


class Profiled(msgspec.Struct, tag=True, array_like=True, frozen=True):
    """The profile with this serial lies at its path, or there is none because of `error`."""

    serial: int
    error: ErrorInfo | None = None


class Failed(msgspec.Struct, tag=True, array_like=True, frozen=True):
    """The actor is about to end because of this."""

    error: ErrorInfo


ToActor = Launch | Swap | Open | Profile | Stop
ToSupervisor = Phase | Ready | Swapped | Profiled | Failed


class Channel:
    """One end of the control channel; made by `channel_pair` and `Channel.adopt`."""

    def __init__(self, end: socket.socket, incoming: object) -> None:
        self._socket = end
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder: msgspec.msgpack.Decoder[ToActor | ToSupervisor] = msgspec.msgpack.Decoder(incoming)

    @classmethod
    def adopt(cls, descriptor: int) -> Channel:
        """Return the actor's end from the inherited `descriptor`."""
        end = socket.socket(fileno=descriptor)
        end.set_inheritable(False)
        return cls(end, ToActor)

    def send(self, message: ToActor | ToSupervisor, descriptors: Sequence[int] = (), *, wait: bool = False) -> None:
        """Send `message`; OSError if the other side is gone.

        If the other side does not read what came before: wait for it, or raise BlockingIOError.
        """
        flags = socket.MSG_NOSIGNAL | (0 if wait else socket.MSG_DONTWAIT)
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", descriptors))] if descriptors else []
        self._socket.sendmsg([self._encoder.encode(message)], ancillary, flags)

    def receive(self, *, wait: bool = False) -> tuple[ToActor | ToSupervisor, list[int]] | None:
        """Return the next message and its descriptors; None if none has come, unless told to wait.

        Raises EOFError when the other side is gone.
        """
        flags = socket.MSG_CMSG_CLOEXEC | (0 if wait else socket.MSG_DONTWAIT)
        room = socket.CMSG_SPACE(DESCRIPTORS_MAX * array("i").itemsize)
        try:
            data, ancillary, _, _ = self._socket.recvmsg(MESSAGE_BYTES_MAX, room, flags)
        except BlockingIOError:
            return None
        except ConnectionResetError:
            data, ancillary = b"", []
        if not data:
            raise EOFError("the control channel has ended")
        return self._decoder.decode(data), _descriptors(ancillary)

    def fileno(self) -> int:
        """Return the descriptor, to be watched."""
        return self._socket.fileno()

    def close(self) -> None:
        """Close this end."""
        self._socket.close()


def channel_pair() -> tuple[Channel, int]:
    """Return the supervisor's end and the descriptor to be inherited by the actor."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    return Channel(ours, ToSupervisor), theirs.detach()


def _descriptors(ancillary: list[tuple[int, int, bytes]]) -> list[int]:
    numbers = array("i")
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            numbers.frombytes(data[: len(data) - len(data) % numbers.itemsize])
    return numbers.tolist()
