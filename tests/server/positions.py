"""Log-probabilities for tests."""

from __future__ import annotations

from tokenspeed.messages.engine import PositionLogprobs, TokenLogprob


def position(
    piece: bytes, logprob: float = -0.5, token: int = 1, *, top: tuple[tuple[bytes, float], ...] = (), offset: int = 0
) -> PositionLogprobs:
    """Return one position; its likeliest tokens have the ids from 100 on."""
    likeliest = [TokenLogprob(100 + rank, value, other) for rank, (other, value) in enumerate(top)]
    return PositionLogprobs(TokenLogprob(token, logprob, piece), 1, likeliest, offset)
