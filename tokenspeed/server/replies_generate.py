"""What `/generate` answers: the reply's text and ids, and everything else in `meta_info`.

Owns its objects. A request for one reply is answered by one object, one for several by a list in the
order of the prompts; in a stream each piece has its `index` then. It does not know how they are sent.

Invariant: the texts and ids of the pieces join to those of the whole answer.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import msgspec

from tokenspeed.engine.reply import OutputLike, Reply
from tokenspeed.messages.engine import PositionLogprobs, TokenLogprob
from tokenspeed.server.logprobs import finite, piece_text
from tokenspeed.server.telling import Teller

Unset = msgspec.UnsetType
UNSET = msgspec.UNSET

Scored = tuple[float | None, int, str]  # log-probability, id, text


class Finish(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why a reply ended: `matched` by a stop string or id, or cut at `length` tokens."""

    type: str
    matched: str | int | None = None
    length: int | None = None


class Meta(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a reply. `e2e_latency` is in seconds. Log-probabilities are there if asked for."""

    id: str
    finish_reason: Finish | None
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    e2e_latency: float | Unset = UNSET
    output_token_logprobs: list[Scored] | Unset = UNSET
    output_top_logprobs: list[list[Scored] | None] | Unset = UNSET
    input_token_logprobs: list[Scored] | Unset = UNSET
    input_top_logprobs: list[list[Scored] | None] | Unset = UNSET


class Generated(msgspec.Struct, frozen=True, kw_only=True):
    """One reply, or a piece of it."""

    index: int | Unset = UNSET
    text: str
    output_ids: list[int]
    meta_info: Meta


class GenerateTeller(Teller):
    """Tells replies."""

    id_prefix = "gen"

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._begun_s = time.monotonic()

    @property
    def is_plain(self) -> bool:
        """No: a piece always has ids."""
        return False

    def opening(self) -> list[Any]:
        """Return nothing: the first piece is the first output."""
        return []

    def text(self, index: int, text: str) -> Generated:
        """Return a piece that brings `text` alone."""
        meta = Meta(id=self._id(index), finish_reason=None, prompt_tokens=0, completion_tokens=0, cached_tokens=0)
        return self._generated(index, text, [], meta)

    def pieces(self, index: int, output: OutputLike) -> list[Any]:
        """Return what is new, if anything is."""
        if not (output.text or output.ids or output.finish):
            return []
        return [self._generated(index, output.text, output.ids, self._meta(index, output))]

    def closing(self) -> list[Any]:
        """Return nothing: each reply's last piece has its counts."""
        return []

    def whole(self, replies: list[Reply]) -> Generated | list[Generated]:
        """Return the reply, or the list of replies where several were asked for."""
        told = [
            self._generated(index, reply.text, reply.ids, self._meta(index, reply))
            for index, reply in enumerate(replies)
        ]
        return told if self.ask.is_batch else told[0]

    def _id(self, index: int) -> str:
        return f"{self.head.id}-{index}" if self.ask.is_batch else self.head.id

    def _generated(self, index: int, text: str, ids: list[int], meta: Meta) -> Generated:
        shown = index if self.ask.is_batch and self.ask.stream else UNSET
        return Generated(index=shown, text=text, output_ids=ids, meta_info=meta)

    def _meta(self, index: int, output: OutputLike) -> Meta:
        return Meta(
            id=self._id(index),
            finish_reason=_finish(output),
            prompt_tokens=output.prompt_tokens,
            completion_tokens=output.completion_tokens,
            cached_tokens=output.cached_tokens,
            e2e_latency=round(time.monotonic() - self._begun_s, 6) if output.finish else UNSET,
            **self._logprobs(index, output),
        )

    def _logprobs(self, index: int, output: OutputLike) -> dict[str, Any]:
        if self.ask.logprobs is None:
            return {}
        told = _told("output", output.logprobs or (), self.ask.logprobs, ())
        if output.prompt_logprobs is None:
            return told
        prompt = output.prompt_logprobs[self.ask.scores_from :]
        return told | _told("input", prompt, self.ask.logprobs, self.known_of(index).ids or ())


def _told(kind: str, positions: Sequence[PositionLogprobs | None], top: int, ids: Sequence[int]) -> dict[str, Any]:
    """Return the two lists of `positions`; where one is None, only its id is known, from `ids`."""
    told: dict[str, Any] = {
        f"{kind}_token_logprobs": [
            (None, ids[place], "") if position is None else _scored(position.token)
            for place, position in enumerate(positions)
        ]
    }
    if top:
        told[f"{kind}_top_logprobs"] = [position and list(map(_scored, position.top)) for position in positions]
    return told


def _scored(token: TokenLogprob) -> Scored:
    return finite(token.logprob), token.id, piece_text(token.piece)


def _finish(output: OutputLike) -> Finish | None:
    match output.finish:
        case "":
            return None
        case "length":
            return Finish("length", length=output.completion_tokens)
        case _:
            return Finish(output.finish, matched=output.stop_reason)
