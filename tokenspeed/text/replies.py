r"""The ids that replies were sampled as, for when they come back as history.

Text does not always encode back to the ids that a model drew, and where ids part, cached pages end.
So each reply sent out is learned here: its ids, its text, and the prompt that it answered. When a
later prompt begins with that prompt and goes on with that text, it gets those ids. The prompt before
a reply is part of its key: elsewhere the ids would save nothing, and nobody can make a text mean
other ids in somebody else's conversation or namespace.

    prompt      <|user|> Hi <|end|> <|assistant|> "\n"
    later one   <|user|> Hi <|end|> <|assistant|> "\nHello!"  <|end|> ...
                `before`, hashed                  head, reply

Invariant: the bytes counted are those of the replies held, and at most `bytes_max`.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Sequence
from hashlib import blake2b
from threading import Lock
from typing import NamedTuple

from tokenspeed.text.encoder import Keys
from tokenspeed.text.kept import kept_ids
from tokenspeed.text.tokenizer import Span, Tokenizer

ALTERNATIVES_MAX = 8  # replies to one prompt
ENTRY_BYTES = 600  # of a reply, its keys and the dictionary's entry, above its ids


class Place(NamedTuple):
    """Where the reply to a prompt will stand: after `before` and the begun text `head` of `head_chars`."""

    before: bytes
    head: blake2b
    head_chars: int


class _Reply(NamedTuple):
    """`ids` stand for the text from `head_chars` to `chars`; `key` is that of the text up to `chars`."""

    key: bytes
    head_chars: int
    chars: int
    ids: array[int]


class ReplyCache:
    """Replies by the prompt they answered; what was used longest ago goes first. Safe between threads."""

    def __init__(self, tokenizer: Tokenizer, bytes_max: int) -> None:
        self._tokenizer = tokenizer
        self._bytes_max = bytes_max
        self._bytes = 0
        self._replies: OrderedDict[bytes, list[_Reply]] = OrderedDict()
        self._lock = Lock()

    def resolve(
        self, parts: Sequence[tuple[str | int, int]], trusted: Sequence[Span], namespace: str
    ) -> tuple[list[str | int | array[int]], Place]:
        """Return `parts` (of `Tokenizer.cut_ends`) with the ids of known replies, and the place of the next one.

        A reply is known again only if what follows its text was written by the template.
        """
        keys, chain = Keys(namespace), Keys(namespace, b"prompts").begun("")
        resolved: list[str | int | array[int]] = []
        place = Place(chain.digest(), keys.begun(""), 0)
        for part, end in parts:
            if isinstance(part, int):
                resolved.append(part)
                chain.update(b"mark" + part.to_bytes(4, "little"))
                place = Place(chain.digest(), keys.begun(""), 0)
                continue
            rest = part
            while (reply := self._find(chain.digest(), rest, end, trusted, keys)) is not None:
                resolved += [rest[: reply.head_chars], reply.ids] if reply.head_chars else [reply.ids]
                rest = rest[reply.chars :]
                chain.update(b"said" + reply.key + keys.of_ids(reply.ids))
            place = Place(chain.digest(), keys.begun(rest), len(rest))
            if rest:
                resolved.append(rest)
                chain.update(b"text" + place.head.digest())
        return resolved, place

    def learn(self, place: Place, text: str, ids: Sequence[int]) -> None:
        """Note that `ids` were sampled at `place` and shown as `text`."""
        found = kept_ids(self._tokenizer, text, ids)
        if not text or found is None:
            return
        head = place.head.copy()
        head.update(text.encode())
        reply = _Reply(head.digest(), place.head_chars, place.head_chars + len(text), found)
        with self._lock:
            held = [each for each in self._pop(place.before) if each.key != reply.key]
            self._put(place.before, [reply, *held][:ALTERNATIVES_MAX])

    def check(self) -> None:
        """Assert the invariant."""
        with self._lock:
            assert self._bytes == sum(map(_size, self._replies.values())) <= self._bytes_max

    def _find(self, before: bytes, text: str, end: int, trusted: Sequence[Span], keys: Keys) -> _Reply | None:
        """Return the longest reply after `before` with which `text`, which ends at `end`, begins."""
        with self._lock:
            replies = self._replies.get(before)
            if replies is None:
                return None
            self._replies.move_to_end(before)
        begin = end - len(text)
        return max(
            (
                reply
                for reply in replies
                if self._may_end(len(text) - reply.chars, begin + reply.chars, trusted)
                and keys.of(text[: reply.chars]) == reply.key
            ),
            key=lambda reply: reply.chars,
            default=None,
        )

    def _may_end(self, chars_left: int, place: int, trusted: Sequence[Span]) -> bool:
        if chars_left <= 0:
            return chars_left == 0
        # With a space of its own before each piece, the rest would not be the text that it is.
        if not self._tokenizer.exact:
            return False
        index = bisect_right(trusted, place, key=lambda span: span[0]) - 1
        return index >= 0 and place < trusted[index][1]

    def _pop(self, before: bytes) -> list[_Reply]:
        replies = self._replies.pop(before, [])
        self._bytes -= _size(replies)
        return replies

    def _put(self, before: bytes, replies: list[_Reply]) -> None:
        self._replies[before] = replies
        self._bytes += _size(replies)
        while self._bytes > self._bytes_max:
            self._bytes -= _size(self._replies.popitem(last=False)[1])


def _size(replies: Sequence[_Reply]) -> int:
    return sum(len(reply.ids) * reply.ids.itemsize + ENTRY_BYTES for reply in replies)
