"""The common form of every message, and int32 arrays as bytes."""

from __future__ import annotations

from array import array
from collections.abc import Iterable

import msgspec


class Message(msgspec.Struct, tag=True, array_like=True, frozen=True, gc=False):
    """A record on a ring: `[class name, field, ...]` in MessagePack."""


def pack_ids(ids: Iterable[int]) -> bytes:
    """Return the int32 bytes of `ids`."""
    return array("i", ids).tobytes()


def view_ids(data: bytes | memoryview) -> memoryview:
    """Return `data` as a view of int32; the length of `data` is a multiple of 4."""
    return memoryview(data).cast("i")


def unpack_ids(data: bytes | memoryview) -> list[int]:
    """Return the ids that `pack_ids` packed."""
    return view_ids(data).tolist()
