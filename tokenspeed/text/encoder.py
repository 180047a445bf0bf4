"""Incremental encoding: what was encoded once is looked up.

Owns a bounded cache from piece to ids. A turn of a conversation repeats all earlier pieces, so only
what is new is encoded; since a piece has the same ids wherever it stands (see `tokenizer`), the
result is always that of encoding everything. Pieces are known by a hash of their text and of the
request's namespace: nobody's encoding is quicker for what another tenant has sent.

Invariant: the bytes counted are those of the entries held, and at most `bytes_max`.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from threading import Lock
from typing import NamedTuple

from tokenspeed.text.tokenizer import Tokenizer

KEY_BYTES = 16
ENTRY_BYTES = 250  # of the dictionary's entry, the key and the array, above its ids


class Keys:
    """Strong hashes of texts, apart for each namespace and kind (at most 16 bytes)."""

    def __init__(self, namespace: str, kind: bytes = b"") -> None:
        self._root = blake2b(digest_size=KEY_BYTES, key=blake2b(namespace.encode()).digest(), person=kind)

    def of(self, text: str) -> bytes:
        """Return the key of `text`."""
        return self.begun(text).digest()

    def of_ids(self, ids: array[int]) -> bytes:
        """Return the key of `ids`."""
        begun = self._root.copy()
        begun.update(ids)
        return begun.digest()

    def begun(self, text: str) -> blake2b:
        """Return the hash of a text that begins with `text`."""
        begun = self._root.copy()
        begun.update(text.encode())
        return begun


class PieceCache:
    """Ids by key; what was used longest ago goes first. Safe to share between threads."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._ids: OrderedDict[bytes, array[int]] = OrderedDict()
        self._lock = Lock()

    def find(self, keys: Iterable[bytes]) -> dict[bytes, array[int]]:
        """Return the ids of those of `keys` that are known; the arrays are not to be changed."""
        found = {}
        with self._lock:
            for key in keys:
                ids = self._ids.get(key)
                if ids is not None:
                    self._ids.move_to_end(key)
                    found[key] = ids
        return found

    def put(self, key: bytes, ids: array[int]) -> None:
        """Keep `ids`; what is larger than the cache is not kept."""
        size = _size(ids)
        if size > self._bytes_max:
            return
        with self._lock:
            if key not in self._ids:
                self._ids[key] = ids
                self._bytes += size
            while self._bytes > self._bytes_max:
                self._bytes -= _size(self._ids.popitem(last=False)[1])

    def check(self) -> None:
        """Assert the invariant."""
        with self._lock:
            assert self._bytes == sum(map(_size, self._ids.values())) <= self._bytes_max


def _size(ids: array[int]) -> int:
    return len(ids) * ids.itemsize + ENTRY_BYTES


class Draft(NamedTuple):
    """A prompt of which some pieces are still text. `missing` are those, by key, in order."""

    parts: list[int | bytes | array[int]]
    known: dict[bytes, array[int]]
    missing: dict[bytes, str]
    first: bytes | None

    @property
    def chars_missing(self) -> int:
        """Return how much is still to be encoded."""
        return sum(map(len, self.missing.values()))


class Encoder:
    """Encodes prompts that share most of their pieces with earlier ones. Safe to share between threads."""

    def __init__(self, tokenizer: Tokenizer, cache_bytes: int) -> None:
        self._tokenizer = tokenizer
        self._cache = PieceCache(cache_bytes)

    def ids(self, parts: Sequence[str | int | array[int]], namespace: str = "") -> array[int]:
        """Return the ids of `parts`: pieces and control tokens as `Tokenizer.cut` returned them, and ids."""
        return self.complete(self.look_up(parts, namespace))

    def look_up(self, parts: Sequence[str | int | array[int]], namespace: str = "") -> Draft:
        """Find what is known of `parts`; quick, whatever there is to encode."""
        keys, keys_first = Keys(namespace), Keys(namespace, b"first")
        drafted: list[int | bytes | array[int]] = []
        texts: dict[bytes, str] = {}
        first = None
        for index, part in enumerate(parts):
            if not isinstance(part, str):
                drafted.append(part)
                continue
            # Some vocabularies encode the piece that begins a prompt differently from all others.
            begins = index == 0 and self._tokenizer.position_matters
            key = (keys_first if begins else keys).of(part)
            first = key if begins else first
            texts[key] = part
            drafted.append(key)
        known = self._cache.find(texts)
        return Draft(drafted, known, {key: text for key, text in texts.items() if key not in known}, first)

    def complete(self, draft: Draft) -> array[int]:
        """Encode what is missing and return the ids of the whole prompt."""
        known = {**draft.known}
        begins = draft.first in draft.missing
        encoded = self._tokenizer.encode_pieces(list(draft.missing.values()), first=begins)
        for key, piece_ids in zip(draft.missing, encoded, strict=True):
            self._cache.put(key, piece_ids)
            known[key] = piece_ids
        ids = array("i")
        for part in draft.parts:
            if isinstance(part, int):
                ids.append(part)
            else:
                ids += known[part] if isinstance(part, bytes) else part
        return ids
