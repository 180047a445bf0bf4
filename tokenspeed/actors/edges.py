"""Who may send to whom: the rings between actors, and fresh ones when an actor begins a new life.

Owns every ring's descriptors for as long as the ring is in use. It does not know processes or
messages. An edge with several readers is a broadcast: everyone on it is everyone's peer, so when
one dies the ring is replaced for all.

Invariant: all segments together take at most `SEGMENT_BYTES_MAX`, since a container gives 64 MB.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import islice

import msgspec

from tokenspeed.actors.control import EdgeGrant
from tokenspeed.ipc.ring import RingFiles, RingReader, create_ring

SEGMENT_BYTES_MAX = 48 << 20
WRITER = -1


class EdgeSpec(msgspec.Struct, frozen=True):
    """A ring from `writer` to each of `readers`, `capacity_bytes` (a power of two) large.

    The writer sends to `address`: by default the first reader's name.
    """

    writer: str
    readers: tuple[str, ...]
    capacity_bytes: int
    address: str = ""

    @property
    def target(self) -> str:
        """Return the name that the writer sends to."""
        return self.address or self.readers[0]

    def joins(self, name: str) -> bool:
        """Return whether `name` is at an end of this edge."""
        return name == self.writer or name in self.readers


Ends = list[tuple[EdgeGrant, RingFiles]]


def adopt_ends(grants: Sequence[EdgeGrant], descriptors: Sequence[int]) -> Ends:
    """Return the ends that were handed over as `grants` with `descriptors`, which now belong to the files."""
    left = iter(descriptors)
    return [
        (grant, RingFiles.from_fds(list(islice(left, grant.descriptors)), grant.capacity_bytes, grant.epoch))
        for grant in grants
    ]


def split_ends(ends: Ends) -> tuple[list[EdgeGrant], list[int]]:
    """Return what `adopt_ends` takes in another process. The descriptors still belong to the files."""
    return [grant for grant, _ in ends], [fd for _, files in ends for fd in files.fds()]


def check_edges(edges: Sequence[EdgeSpec], names: Collection[str]) -> None:
    """Raise ValueError if an edge has an end that is not among `names`, or two edges cannot be told apart."""
    seen: set[tuple[str, str, str]] = set()
    for edge in edges:
        for end in (edge.writer, *edge.readers):
            if end not in names:
                raise ValueError(f"edge to {edge.target!r}: {end!r} is no actor; actors are {sorted(names)}")
        for mark in [("to", edge.writer, edge.target), *(("from", edge.writer, name) for name in edge.readers)]:
            if mark in seen:
                raise ValueError(f"two edges from {mark[1]!r} to {mark[2]!r}; one ordered edge carries all messages")
            seen.add(mark)
        if edge.capacity_bytes < 1 or edge.capacity_bytes & (edge.capacity_bytes - 1):
            raise ValueError(f"edge to {edge.target!r}: {edge.capacity_bytes} bytes; a capacity is a power of two")
    total = sum(edge.capacity_bytes for edge in edges)
    if total > SEGMENT_BYTES_MAX:
        raise ValueError(f"rings of {total} bytes together; at most {SEGMENT_BYTES_MAX}: make edges smaller")


class EdgeTable:
    """All edges and their present rings."""

    def __init__(self, edges: Sequence[EdgeSpec]) -> None:
        self.edges = tuple(edges)
        self._files: dict[EdgeSpec, RingFiles] = {}

    def create(self, epoch: int) -> None:
        """Make every ring. StartError if there is no memory for them."""
        self._replace(self.edges, epoch)

    def renew(self, name: str, epoch: int) -> tuple[EdgeSpec, ...]:
        """Replace every ring that has an end at `name`, and return those edges."""
        touched = tuple(edge for edge in self.edges if edge.joins(name))
        self._replace(touched, epoch)
        return touched

    def ends(self, name: str, among: Sequence[EdgeSpec] | None = None) -> Ends:
        """Return the ends that `name` has of the edges `among` (of all, if None)."""
        wanted = self.edges if among is None else among
        return [(self._grant(edge, name), self._files[edge]) for edge in wanted if edge.joins(name)]

    def epoch(self, edge: EdgeSpec) -> int:
        """Return the epoch of the edge's present ring."""
        return self._files[edge].epoch

    def fill(self) -> dict[str, int]:
        """Return the bytes that wait for each reader, by "writer to reader"; of no ring before there are any."""
        return {
            f"{edge.writer} to {reader}": _fill(self._files[edge], index)
            for edge in self.edges
            if edge in self._files
            for index, reader in enumerate(edge.readers)
        }

    def close(self) -> None:
        """Close all descriptors."""
        for files in self._files.values():
            files.close()
        self._files.clear()

    def _grant(self, edge: EdgeSpec, name: str) -> EdgeGrant:
        files = self._files[edge]
        peer, reader = (edge.target, WRITER) if name == edge.writer else (edge.writer, edge.readers.index(name))
        return EdgeGrant(peer, reader, files.capacity, files.epoch, len(files.fds()), self.edges.index(edge))

    def _replace(self, edges: Sequence[EdgeSpec], epoch: int) -> None:
        for edge in edges:
            if edge in self._files:
                self._files.pop(edge).close()
        for edge in edges:
            self._files[edge] = create_ring(edge.capacity_bytes, epoch, readers=len(edge.readers))


def _fill(files: RingFiles, index: int) -> int:
    onlooker = RingReader(files, index)
    try:
        return onlooker.fill
    finally:
        onlooker.close()
