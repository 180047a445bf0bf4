"""Incremental encoding: what was encoded once is looked up.

Owns a bounded cache from piece to ids. A turn of a conversation repeats all earlier pieces, so only
what is new is encoded; since a piece has the same ids wherever it stands (see `tokenizer`), the
result is always that of encoding everything.

Invariant: the bytes counted are those of the entries held, and at most `bytes_max`.
"""

from __future__ import annotations

import sys
from array import array
from collections import OrderedDict
from collections.abc import Sequence
from threading import Lock

from tokenspeed.text.tokenizer import Tokenizer

ENTRY_BYTES = 200  # of the dictionary's entry and the array, above their contents


class PieceCache:
    """Ids by piece; the piece used longest ago goes first. Safe to share between threads."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._ids: OrderedDict[str, array[int]] = OrderedDict()
        self._lock = Lock()

    def find(self, pieces: Sequence[str]) -> dict[str, array[int]]:
        """Return the ids of those of `pieces` that are known; the arrays are not to be changed."""
        found = {}
        with self._lock:
            for piece in pieces:
                ids = self._ids.get(piece)
                if ids is not None:
                    self._ids.move_to_end(piece)
                    found[piece] = ids
        return found

    def put(self, piece: str, ids: array[int]) -> None:
        """Keep `ids` for `piece`; a piece larger than the cache is not kept."""
        size = _size(piece, ids)
        if size > self._bytes_max:
            return
        with self._lock:
            if piece not in self._ids:
                self._ids[piece] = ids
                self._bytes += size
            while self._bytes > self._bytes_max:
                self._bytes -= _size(*self._ids.popitem(last=False))

    def check(self) -> None:
        """Assert the invariant."""
        with self._lock:
            assert self._bytes == sum(_size(piece, ids) for piece, ids in self._ids.items()) <= self._bytes_max


def _size(piece: str, ids: array[int]) -> int:
    return sys.getsizeof(piece) + len(ids) * ids.itemsize + ENTRY_BYTES


class Encoder:
    """Encodes prompts that share most of their pieces with earlier ones. Safe to share between threads."""

    def __init__(self, tokenizer: Tokenizer, cache_bytes: int) -> None:
        self._tokenizer = tokenizer
        self._cache = PieceCache(cache_bytes)
        # Some vocabularies encode the piece that begins a prompt differently from all others.
        self._first = PieceCache(cache_bytes // 8) if tokenizer.position_matters else self._cache

    def ids(self, parts: Sequence[str | int]) -> array[int]:
        """Return the ids of `parts`, pieces and control tokens as `Tokenizer.cut` returned them."""
        ids = array("i")
        if self._tokenizer.position_matters and parts and isinstance(parts[0], str):
            ids += self._look_up(self._first, [parts[0]])[parts[0]]
            parts = parts[1:]
        known = self._look_up(self._cache, [part for part in parts if isinstance(part, str)])
        for part in parts:
            if isinstance(part, int):
                ids.append(part)
            else:
                ids += known[part]
        return ids

    def _look_up(self, cache: PieceCache, pieces: list[str]) -> dict[str, array[int]]:
        known = cache.find(pieces)
        # One call for all that are new, since the library encodes the items of a call in parallel.
        new = list(dict.fromkeys(piece for piece in pieces if piece not in known))
        for piece, ids in zip(new, self._tokenizer.encode_pieces(new, first=cache is self._first), strict=True):
            cache.put(piece, ids)
            known[piece] = ids
        return known
