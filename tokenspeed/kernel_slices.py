"""What a GPU ran and when: the form in which a profile leaves the executor.

Owns the form of the file. It does not know how kernels are observed.
"""

from __future__ import annotations

from pathlib import Path

import msgspec


class KernelSlice(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """One kernel or copy on the GPU, on the host's monotonic clock; `stream` is the GPU's number of it."""

    name: str
    begin_ns: int
    end_ns: int
    stream: int


def write_slices(path: Path, slices: list[KernelSlice]) -> None:
    """Write `slices` to `path`."""
    path.write_bytes(msgspec.msgpack.encode(slices))


def read_slices(path: Path) -> list[KernelSlice]:
    """Return the slices in `path`; `msgspec.MsgspecError` if it holds something else."""
    return msgspec.msgpack.decode(path.read_bytes(), type=list[KernelSlice])
