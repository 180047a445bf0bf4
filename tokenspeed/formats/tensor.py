"""Where one tensor of a checkpoint lies.

The common word of the readers: a name, a shape, a storage type and a range of bytes in a file.
Nothing here opens a file or knows what the numbers mean.

Invariant: `offset + bytes` is at most the size of `file` when the reader looked.
"""

from __future__ import annotations

from pathlib import Path

import msgspec


class TensorInfo(msgspec.Struct, frozen=True):
    """A tensor's place: `bytes` bytes at `offset` (absolute) of `file`.

    `shape` is outermost first, as torch writes it. `type` is the storage type's name: "F32",
    "BF16", or a block format such as "Q4_1".
    """

    name: str
    shape: tuple[int, ...]
    type: str
    offset: int
    bytes: int
    file: Path

    @property
    def elements(self) -> int:
        """The number of elements; 1 for a scalar."""
        count = 1
        for size in self.shape:
            count *= size
        return count
