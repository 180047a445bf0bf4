"""Token ids to the text that a user may see, as it grows.

Owns one reply's way from ids to text: characters are shown once they are complete, stop strings are
cut off with nothing of them shown before, control tokens are not seen. Held back is only what must
be: an incomplete character, and the longest end of the text that may begin a stop string.

Invariant: the texts returned by every `push` and by `finish` join to the same text, however the ids
were cut into pushes.
"""

from __future__ import annotations

import codecs
from collections import deque
from collections.abc import Sequence

from tokenspeed.text.stops import StopMatcher

_Utf8 = codecs.getincrementaldecoder("utf-8")


class OutputStream:
    """The output of one request.

    `stopped` is the stop string that ended the text, None while there is none. `chars` is the
    number of characters returned so far. `tokens_kept` counts the tokens pushed, up to and
    including the one that completed the stop string, shown or not: it is what usage counts.

    With `placed`, `offsets` has for each token shown so far the number of characters before its
    first. A token is shown once its first character is, or when the reply has ended; one that begins
    in what a stop string cut off never is.
    """

    def __init__(
        self,
        token_bytes: Sequence[bytes],
        stop: Sequence[str] = (),
        *,
        include_stop: bool = False,
        placed: bool = False,
    ) -> None:
        """`token_bytes[id]` is empty for tokens that are not shown; `stop` holds no empty string.

        With `include_stop` the stop string that ended the text stays at its end.
        """
        self.stopped: str | None = None
        self.tokens_kept = 0
        self.chars = 0
        self._token_bytes = token_bytes
        self._decoder = _Utf8(errors="replace")
        self._stops = StopMatcher(stop) if stop else None
        self._held = ""
        self._finished = False
        self._include_stop = include_stop
        self._placed = placed
        self.offsets: list[int] = []
        self._offsets_held: deque[int] = deque()
        self._read = 0  # characters decoded

    def push(self, ids: Sequence[int], hide_last: bool = False) -> str:
        """Take the next `ids`; return the text that is now safe to show.

        With `hide_last` the last id counts but shows nothing (it ended the reply). After a stop
        string was found, or after `finish`, ids are ignored.
        """
        if self.stopped is not None or self._finished:
            return ""
        shown = len(ids) - 1 if hide_last else len(ids)
        if self._stops is None and not self._placed:
            self.tokens_kept += len(ids)
            return self._show(self._decode(b"".join(map(self._bytes_of, ids[:shown]))))
        return self._show("".join(self._one_by_one(ids, shown)))

    def finish(self) -> str:
        """Return what was held back; bytes of a character that never became complete are U+FFFD."""
        if self.stopped is not None or self._finished:
            return ""
        self._finished = True
        rest = self._safe(self._decode(b"", final=True))
        if self.stopped is None:
            rest += self._held
        self._held = ""
        rest = self._show(rest)
        if self.stopped is None:
            self.offsets += self._offsets_held
        return rest

    def _one_by_one(self, ids: Sequence[int], shown: int) -> list[str]:
        texts = []
        for index, token in enumerate(ids):
            self.tokens_kept += 1
            if self._placed:
                self._offsets_held.append(self._read)
            if index < shown:
                texts.append(self._safe(self._decode(self._bytes_of(token))))
                if self.stopped is not None:
                    break
        return texts

    def _safe(self, text: str) -> str:
        """Return what is safe to show now that `text` came; set `stopped` if it completes a stop string."""
        if self._stops is None or not text:
            return text
        match = self._stops.read(text)
        if match is not None:
            end, self.stopped = match
            cut = 0 if self._include_stop else len(self.stopped)
            return self._split(self._held + text, len(self._held) + end - cut)[0]
        text, self._held = self._split(self._held + text, len(self._held) + len(text) - self._stops.pending)
        return text

    @staticmethod
    def _split(text: str, place: int) -> tuple[str, str]:
        return text[:place], text[place:]

    def _bytes_of(self, token: int) -> bytes:
        # A model's vocabulary may be padded beyond its tokenizer's.
        return self._token_bytes[token] if 0 <= token < len(self._token_bytes) else b""

    def _decode(self, data: bytes, final: bool = False) -> str:
        text = self._decoder.decode(data, final)
        self._read += len(text)
        return text

    def _show(self, text: str) -> str:
        self.chars += len(text)
        while self._offsets_held and self._offsets_held[0] < self.chars:
            self.offsets.append(self._offsets_held.popleft())
        return text
