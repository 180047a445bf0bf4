"""Log-probabilities in the shapes of the APIs: OpenAI's two, and vLLM's for the prompt.

Owns how a token is written when its bytes are not a whole text: a fragment of a character is written
as the numbers of its bytes, so that two fragments are never the same text. Numbers are finite: JSON knows
no other.

Invariant: `bytes` are the token's own, whatever stands in `token`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from tokenspeed.messages.engine import PositionLogprobs, TokenLogprob

LOGPROB_MIN = -9999.0
BYTES = "bytes:"  # stands before the bytes of a fragment where nothing else tells that they are none


class TopLogprob(msgspec.Struct, frozen=True):
    """One of the likeliest tokens of a position."""

    token: str
    logprob: float
    bytes: list[int]


class ContentLogprob(msgspec.Struct, frozen=True):
    """One token of a chat reply."""

    token: str
    logprob: float
    bytes: list[int]
    top_logprobs: list[TopLogprob]


class ChoiceLogprobs(msgspec.Struct, frozen=True):
    """The tokens of a chat reply, or of a piece of it."""

    content: list[ContentLogprob]
    refusal: None = None


class TextLogprobs(msgspec.Struct):
    """The tokens of a completion; of the prompt's first token nothing can be told."""

    text_offset: list[int]
    token_logprobs: list[float | None]
    tokens: list[str]
    top_logprobs: list[dict[str, float] | None]


class PromptLogprob(msgspec.Struct, frozen=True):
    """What vLLM tells of a token at a position of the prompt."""

    logprob: float
    rank: int
    decoded_token: str


PromptLogprobs = list[dict[str, PromptLogprob] | None]


def token_text(token: TokenLogprob, *, as_id: bool = False, mark: str = "") -> str:
    """Return how `token` is written; `mark` goes before the bytes of what is no whole text."""
    if as_id:
        return f"token_id:{token.id}"
    return piece_text(token.piece, mark)


def piece_text(piece: bytes, mark: str = "") -> str:
    """Return `piece` as text, its bytes behind `mark` if it is none."""
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return mark + "".join(f"\\x{byte:02x}" for byte in piece)


def finite(logprob: float) -> float:
    """Return `logprob`, or the least number told in the place of minus infinity."""
    return logprob if logprob > LOGPROB_MIN else LOGPROB_MIN


def chat_logprobs(positions: Iterable[PositionLogprobs], as_ids: bool) -> ChoiceLogprobs:
    """Return the shape of the chat API."""
    return ChoiceLogprobs([_content(position, as_ids) for position in positions])


def _content(position: PositionLogprobs, as_ids: bool) -> ContentLogprob:
    top = [TopLogprob(token_text(each, as_id=as_ids), finite(each.logprob), list(each.piece)) for each in position.top]
    token = position.token
    return ContentLogprob(token_text(token, as_id=as_ids), finite(token.logprob), list(token.piece), top)


def text_logprobs(
    prompt: Sequence[PositionLogprobs | None],
    reply: Sequence[PositionLogprobs],
    *,
    first_piece: bytes,
    top: int,
    before: int,
    as_ids: bool,
) -> TextLogprobs:
    """Return the shape of the completions API: `prompt` from the text's beginning, then `reply`.

    `first_piece` is what the prompt's first token adds to the text, of which no more is known. `reply`
    begins `before` characters after the beginning. Of each position `top` likeliest tokens are told,
    and the one that stands there.
    """
    offsets = [*_prompt_offsets(prompt, first_piece), *(before + position.offset for position in reply)]
    told = TextLogprobs(offsets, [], [], [])
    for position in (*prompt, *reply):
        if position is None:
            told.tokens.append(piece_text(first_piece, BYTES))
            told.token_logprobs.append(None)
            told.top_logprobs.append(None)
            continue
        told.tokens.append(token_text(position.token, as_id=as_ids, mark=BYTES))
        told.token_logprobs.append(finite(position.token.logprob))
        told.top_logprobs.append(_by_token(position, top, as_ids))
    return told


def _by_token(position: PositionLogprobs, top: int, as_ids: bool) -> dict[str, float]:
    found: dict[str, float] = {}
    for token in (*position.top[:top], position.token):
        text = token_text(token, as_id=as_ids, mark=BYTES)
        found.setdefault(text, finite(token.logprob))  # the likelier of two that look the same
    return found


def _prompt_offsets(prompt: Sequence[PositionLogprobs | None], first_piece: bytes) -> list[int]:
    """Return the characters before each token: bytes that begin one, counted."""
    offsets, chars = [], 0
    for position in prompt:
        piece = position.token.piece if position else first_piece
        begun = chars - 1 if piece and _goes_on(piece[0]) and chars else chars
        offsets.append(begun)
        chars += sum(not _goes_on(byte) for byte in piece)
    return offsets


def _goes_on(byte: int) -> bool:
    return byte & 0xC0 == 0x80


def prompt_logprobs(positions: Sequence[PositionLogprobs | None], top: int) -> PromptLogprobs:
    """Return vLLM's shape: for each position of the prompt its token and the `top` likeliest, by id."""
    return [None if position is None else _by_id(position, top) for position in positions]


def _by_id(position: PositionLogprobs, top: int) -> dict[str, PromptLogprob]:
    found = {
        str(token.id): PromptLogprob(finite(token.logprob), rank, piece_text(token.piece))
        for rank, token in enumerate(position.top[:top], 1)
    }
    token = position.token
    found.setdefault(str(token.id), PromptLogprob(finite(token.logprob), position.rank, piece_text(token.piece)))
    return found
