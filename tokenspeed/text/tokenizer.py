"""Text to token ids.

Owns the encoder of one model and the rule about control tokens: only text that the caller trusts
can become one. Everything else is encoded as the plain text that it is, whatever it spells.

Text between two control marks is a *piece*; pieces are encoded apart from each other, so that a
piece has the same ids wherever it stands. That is what makes encoding incremental.

Invariant: the ids of a piece contain no control token.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Backend

from tokenspeed.formats.gguf import read_gguf
from tokenspeed.formats.location import weights_path
from tokenspeed.text.backend_gguf import gguf_backend
from tokenspeed.text.backend_hf import hf_backends
from tokenspeed.text.stand_in import lacks_vocabulary, stand_in_backend, stand_in_vocabulary
from tokenspeed.text.vocabulary import Mark, Vocabulary
from tokenspeed.text.vocabulary_gguf import gguf_vocabulary
from tokenspeed.text.vocabulary_hf import hf_vocabulary

# What Unicode calls white space; str.strip() alone would take more.
_WHITE = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))

SPANS_KEPT, SPAN_CHARS_KEPT = 1024, 256
ALONE_CHARS_MAX = 32 << 10

Span = tuple[int, int]


def load_tokenizer(path: str | Path, *, dummy: bool = False, overrides: Mapping[str, Any] | None = None) -> Tokenizer:
    """Return the tokenizer of the checkpoint at `path`; raise `StartError` if it cannot be read.

    With `dummy` a folder without a tokenizer gets a stand-in. `overrides` are merged into config.json.
    """
    weights = weights_path(path, dummy=dummy)
    if dummy and lacks_vocabulary(weights):
        backend = stand_in_backend()
        return Tokenizer(stand_in_vocabulary(weights, overrides), backend, backend)
    if weights.is_dir():
        vocabulary = hf_vocabulary(weights, overrides)
        return Tokenizer(vocabulary, *hf_backends(weights, vocabulary))
    file = read_gguf(weights)
    vocabulary = gguf_vocabulary(file)
    backend = gguf_backend(file, vocabulary)
    return Tokenizer(vocabulary, backend, backend)


class Tokenizer:
    """Encodes text for one model. Safe to share between threads: nothing changes after construction."""

    def __init__(self, vocabulary: Vocabulary, first: Backend, rest: Backend) -> None:
        """`first` encodes the piece that begins a prompt, `rest` all others."""
        self.vocabulary = vocabulary
        self.vocab_tokens = len(vocabulary.token_bytes)
        self.position_matters = first is not rest
        self._first = first
        self._rest = rest
        self._control_ids = frozenset(mark.id for mark in vocabulary.marks.values())
        longest_first = sorted(vocabulary.marks, key=len, reverse=True)
        self._mark = re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")
        self._find_again = lru_cache(maxsize=SPANS_KEPT)(self._find)
        # Some vocabularies put a space before every piece, or take those at its ends away.
        self.exact = all(self.spell(self.encode_pieces([text])[0]) == text.encode() for text in ("a", " a "))

    def encode(self, text: str, allow_control: bool = False) -> array[int]:
        """Return the ids of `text`; control marks in it become control tokens only if `allow_control`."""
        return self.encode_all(self.cut(text, [(0, len(text))] if allow_control else []))

    def encode_all(self, parts: Sequence[str | int]) -> array[int]:
        """Return the ids of pieces and control tokens as `cut` returned them."""
        ids = array("i")
        for index, part in enumerate(parts):
            if isinstance(part, int):
                ids.append(part)
            else:
                ids += self.encode_pieces([part], first=index == 0)[0]
        return ids

    def spell(self, ids: Sequence[int]) -> bytes:
        """Return the bytes that `ids` show."""
        table = self.vocabulary.token_bytes
        # A model's vocabulary may be padded beyond its tokenizer's; such ids show nothing.
        return b"".join(table[token] for token in ids if 0 <= token < len(table))

    def cut(self, text: str, trusted: Sequence[Span]) -> list[str | int]:
        """Return `text` as pieces and, for each control mark inside one of the `trusted` spans, its id.

        `trusted` is ascending and does not touch itself; a mark that is only partly inside does not count.
        """
        return [part for part, _ in self.cut_ends(text, trusted)]

    def cut_ends(self, text: str, trusted: Sequence[Span]) -> list[tuple[str | int, int]]:
        """Return what `cut` does, each part with the place in `text` where it ends."""
        parts: list[tuple[str | int, int]] = []
        begin = 0
        strip_next = False
        for start, end, mark in self._marks_in(text, trusted):
            _add_piece(parts, text, begin, start, left=strip_next, right=mark.lstrip)
            parts.append((mark.id, end))
            begin, strip_next = end, mark.rstrip
        _add_piece(parts, text, begin, len(text), left=strip_next, right=False)
        return parts

    def _marks_in(self, text: str, trusted: Sequence[Span]) -> Iterator[tuple[int, int, Mark]]:
        for start, end in trusted:
            # A template writes few different texts, again and again.
            find = self._find_again if end - start <= SPAN_CHARS_KEPT else self._find
            for begin, stop, mark in find(text[start:end]):
                yield start + begin, start + stop, mark

    def _find(self, text: str) -> list[tuple[int, int, Mark]]:
        return [
            (match.start(), match.end(), self.vocabulary.marks[match.group()]) for match in self._mark.finditer(text)
        ]

    def encode_pieces(self, pieces: Sequence[str], first: bool = False) -> list[array[int]]:
        """Return the ids of each of `pieces`; `first` tells that the first of them begins the prompt."""
        if first and self.position_matters:
            return [*self._plain(self._first, pieces[:1]), *self._plain(self._rest, pieces[1:])]
        return self._plain(self._rest, pieces)

    def _plain(self, backend: Backend, pieces: Sequence[str]) -> list[array[int]]:
        found = _encode(backend, pieces)
        for index, ids in enumerate(found):
            if not self._control_ids.isdisjoint(ids):
                found[index] = self._apart(backend, pieces[index])
        return found

    def _apart(self, backend: Backend, piece: str) -> array[int]:
        """Encode a piece whose text a vocabulary takes for a control token whole: cut inside each mark."""
        ends = [*(match.start() + 1 for match in self._mark.finditer(piece)), len(piece)]
        parts = _encode(backend, [piece[begin:end] for begin, end in pairwise([0, *ends])])
        return array("i", chain.from_iterable(parts))


def _encode(backend: Backend, pieces: Sequence[str]) -> list[array[int]]:
    """Return the ids of each piece. Only calls for batches release the interpreter's lock.

    The library's threads, one for each core, take the items of all batches in turn: a short prompt would
    wait there behind a long one's. A batch of one item is encoded in the caller's thread.
    """
    short = sum(map(len, pieces)) <= ALONE_CHARS_MAX
    batches = [[piece] for piece in pieces] if short else [list(pieces)]
    encodings = [each for batch in batches for each in backend.encode_batch_fast(batch, add_special_tokens=False)]
    return [array("i", encoding.ids) for encoding in encodings]


def _add_piece(parts: list[tuple[str | int, int]], text: str, begin: int, end: int, *, left: bool, right: bool) -> None:
    piece = text[begin:end]
    if right:
        piece = piece.rstrip(_WHITE)
        end = begin + len(piece)
    if left:
        piece = piece.lstrip(_WHITE)
    if piece:
        parts.append((piece, end))
