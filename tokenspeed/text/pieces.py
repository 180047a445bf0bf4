"""Log-probabilities for a reader: ids with what they add to the text.

Owns the way from packed entries (`messages/logprobs.py`) to the structs that the doors give out. It
does not know which of them a reader sees, nor when.

Invariant: every number that leaves is finite.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tokenspeed.messages.engine import PositionLogprobs, TokenLogprob
from tokenspeed.messages.logprobs import entries

# What JSON cannot say (minus infinity, no number) leaves as this.
LOGPROB_MIN = -9999.0


class Pieces:
    """What each token adds to the text: `token_bytes` by id, nothing for ids beyond them."""

    def __init__(self, token_bytes: Sequence[bytes]) -> None:
        self._token_bytes = token_bytes

    def positions(self, packed: bytes, top: int, offsets: Iterable[int]) -> list[PositionLogprobs]:
        """Return the entries of `packed`, each with `top` likeliest ids, and an offset for each of them."""
        return [
            PositionLogprobs(
                self._token(entry.id, entry.logprob),
                entry.rank,
                list(map(self._token, entry.top_ids, entry.top_logprobs)),
                offset,
            )
            for entry, offset in zip(entries(packed, top), offsets, strict=False)
        ]

    def _token(self, token: int, logprob: float) -> TokenLogprob:
        piece = self._token_bytes[token] if 0 <= token < len(self._token_bytes) else b""
        # Not max(): it would let what is no number through.
        return TokenLogprob(token, logprob if logprob > LOGPROB_MIN else LOGPROB_MIN, piece)
