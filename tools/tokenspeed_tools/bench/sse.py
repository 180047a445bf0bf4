"""Server-sent events, cut out of bytes as they come.

Owns the bytes of an event whose end has not come yet. It does not know what the events say, nor when
they came.

Invariant: the events are the same for every way to cut the stream into pieces, and each is handed
out with the piece that holds its last byte.
"""

from __future__ import annotations

import re

_END = re.compile(rb"\r\n\r\n|\n\n|\r\r")
_LINE = re.compile(rb"\r\n|\n|\r")


class Cutter:
    """Cuts one stream."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        """Return the data of each event that ends in `data`; comments and other fields are left out."""
        whole = self._rest + data if self._rest else data
        *events, self._rest = _END.split(whole)
        return [text for event in events if (text := _data(event))]


def _data(event: bytes) -> bytes:
    """Return the lines of the field `data`, joined as the standard says."""
    if event.startswith(b"data: ") and b"\n" not in event and b"\r" not in event:
        return event[6:]
    lines = [line.partition(b":") for line in _LINE.split(event)]
    return b"\n".join(value.removeprefix(b" ") for field, _, value in lines if field == b"data")
