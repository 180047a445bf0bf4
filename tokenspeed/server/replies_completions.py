"""What a completion looks like, whole and in chunks: OpenAI's older text API.

Owns its objects and field order, and how an echoed prompt is joined to the reply: its text before the
reply's, its log-probabilities before the reply's. It does not know how answers are sent.

Invariant: `text_offset` counts characters of the choice's whole text.
"""

from __future__ import annotations

from typing import Any

import msgspec

from tokenspeed.engine.reply import OutputLike, Reply
from tokenspeed.server.logprobs import PromptLogprobs, TextLogprobs, prompt_logprobs, text_logprobs
from tokenspeed.server.tally import Usage
from tokenspeed.server.telling import Teller

Unset = msgspec.UnsetType
UNSET = msgspec.UNSET


class TextChoice(msgspec.Struct, frozen=True):
    """A choice, or a piece of one, which has no `finish_reason` before its end."""

    index: int
    text: str
    logprobs: TextLogprobs | None = None
    finish_reason: str | None = None
    stop_reason: str | int | None = None
    prompt_logprobs: PromptLogprobs | Unset = UNSET
    prompt_token_ids: list[int] | Unset = UNSET
    token_ids: list[int] | Unset = UNSET


class Completion(msgspec.Struct, frozen=True):
    """An answer, or a piece of one; the usage of a streamed one, when asked for, comes with no choice."""

    id: str
    object: str
    created: int
    model: str
    choices: list[TextChoice]
    usage: Usage | Unset = UNSET


class CompletionTeller(Teller):
    """Tells completions."""

    id_prefix = "cmpl"

    def opening(self) -> list[Any]:
        """Return the echoed prompts; those with log-probabilities come with the first output."""
        if self._joins:
            return []
        choices = (TextChoice(index, self.known_of(index).echo) for index in range(len(self.ask.parts)))
        return [self._chunk(choice) for choice in choices if choice.text]

    def text(self, index: int, text: str) -> Completion:
        """Return the chunk that brings `text` alone."""
        return self._chunk(TextChoice(index, text))

    def pieces(self, index: int, output: OutputLike) -> list[Any]:
        """Return the chunk with what is new, if anything is; the last one says why the choice ends."""
        scores = output.prompt_logprobs if self._joins else None
        if not (output.text or output.finish or scores or (output.ids and not self.is_plain)):
            return []
        is_first = scores is not None
        told = self.known_of(index).echo + output.text if is_first else output.text
        return [self._chunk(self._told(index, output, told, UNSET if not output.prompt_logprobs else self._ids(index)))]

    def closing(self) -> list[Any]:
        """Return the extra chunk with the usage, if it is wanted."""
        return [self._of([], self.tally.usage())] if self.ask.include_usage else []

    def whole(self, replies: list[Reply]) -> Completion:
        """Return the whole answer."""
        told = [
            self._told(index, reply, self.known_of(index).echo + reply.text, self._ids(index))
            for index, reply in enumerate(replies)
        ]
        return self._of(told, self.tally.usage())

    @property
    def _joins(self) -> bool:
        return self.ask.echo and self.ask.logprobs is not None

    def _ids(self, index: int) -> list[int] | Unset:
        ids = self.known_of(index).ids
        return UNSET if ids is None else ids

    def _told(self, index: int, output: OutputLike, text: str, prompt_ids: list[int] | Unset) -> TextChoice:
        ask = self.ask
        return TextChoice(
            index,
            text,
            self._logprobs(index, output),
            output.finish or None,
            output.stop_reason,
            UNSET
            if ask.prompt_logprobs is None
            else prompt_logprobs(output.prompt_logprobs or (), ask.prompt_logprobs),
            prompt_ids,
            output.ids if ask.token_ids else UNSET,
        )

    def _logprobs(self, index: int, output: OutputLike) -> TextLogprobs | None:
        if self.ask.logprobs is None:
            return None
        known = self.known_of(index)
        return text_logprobs(
            output.prompt_logprobs or () if self.ask.echo else (),
            output.logprobs or (),
            first_piece=known.first_piece,
            top=self.ask.logprobs,
            before=len(known.echo),
            as_ids=self.ask.tokens_as_ids,
        )

    def _chunk(self, choice: TextChoice) -> Completion:
        return self._of([choice], self.tally.usage() if self.ask.continuous_usage else UNSET)

    def _of(self, choices: list[TextChoice], usage: Usage | Unset) -> Completion:
        return Completion(self.head.id, "text_completion", self.head.created, self.head.model, choices, usage)
