"""What a chat reply looks like, whole and in chunks.

Owns ids, objects and field order of the chat API's answers. It does not know how they are sent.

Invariant: the chunks of a choice are a role, its text, and one finish.
"""

from __future__ import annotations

from typing import Any

import msgspec

from tokenspeed.engine.reply import OutputLike, Reply
from tokenspeed.server.logprobs import ChoiceLogprobs, PromptLogprobs, chat_logprobs, prompt_logprobs
from tokenspeed.server.tally import Usage
from tokenspeed.server.telling import Teller

Unset = msgspec.UnsetType
UNSET = msgspec.UNSET


class ReplyMessage(msgspec.Struct, frozen=True):
    """The reply of a whole answer."""

    role: str
    content: str


class Choice(msgspec.Struct, frozen=True):
    """A choice of a whole answer; `stop_reason` is the stop string or id that matched."""

    index: int
    message: ReplyMessage
    logprobs: ChoiceLogprobs | None
    finish_reason: str
    stop_reason: str | int | None
    token_ids: list[int] | Unset = UNSET


class ChatCompletion(msgspec.Struct, frozen=True):
    """A whole answer."""

    id: str
    object: str
    created: int
    model: str
    choices: list[Choice]
    usage: Usage
    prompt_logprobs: PromptLogprobs | Unset = UNSET
    prompt_token_ids: list[int] | Unset = UNSET


class ChunkChoice(msgspec.Struct, frozen=True):
    """A choice in a chunk."""

    index: int
    delta: dict[str, str]
    logprobs: ChoiceLogprobs | None = None
    finish_reason: str | None = None
    stop_reason: str | int | Unset | None = UNSET
    token_ids: list[int] | Unset = UNSET


class ChatChunk(msgspec.Struct, frozen=True):
    """A piece of a streamed answer; the usage, when asked for, comes with no choice."""

    id: str
    object: str
    created: int
    model: str
    choices: list[ChunkChoice]
    usage: Usage | Unset = UNSET
    prompt_token_ids: list[int] | Unset = UNSET


class ChatTeller(Teller):
    """Tells chat replies."""

    id_prefix = "chatcmpl"

    def opening(self) -> list[Any]:
        """Return the role of each choice, and after it what is echoed."""
        told = []
        for index in range(len(self.ask.parts)):
            ids = self.known_of(index).ids
            role = ChunkChoice(index, {"role": "assistant", "content": ""})
            told.append(self._chunk(role, UNSET if ids is None else ids))
            if self.known_of(index).echo:
                told.append(self.text(index, self.known_of(index).echo))
        return told

    def text(self, index: int, text: str) -> ChatChunk:
        """Return the chunk that brings `text` alone."""
        return self._chunk(ChunkChoice(index, {"content": text}))

    def pieces(self, index: int, output: OutputLike) -> list[Any]:
        """Return the chunk with what is new, if anything is, and the one that says why the choice ends."""
        told = []
        if output.text or (output.ids and not self.is_plain):
            told.append(self._chunk(self._delta(index, output)))
        if output.finish:
            end = ChunkChoice(index, {}, finish_reason=output.finish, stop_reason=output.stop_reason)
            told.append(self._chunk(end))
        return told

    def closing(self) -> list[Any]:
        """Return the extra chunk with the usage, if it is wanted."""
        return [self._of([], self.tally.usage())] if self.ask.include_usage else []

    def whole(self, replies: list[Reply]) -> ChatCompletion:
        """Return the whole answer."""
        scores, ids = replies[0].prompt_logprobs, self.known[0].ids
        return ChatCompletion(
            self.head.id,
            "chat.completion",
            self.head.created,
            self.head.model,
            [self._choice(index, reply) for index, reply in enumerate(replies)],
            self.tally.usage(),
            UNSET if self.ask.prompt_logprobs is None else prompt_logprobs(scores or [], self.ask.prompt_logprobs),
            UNSET if ids is None else ids,
        )

    def _choice(self, index: int, reply: Reply) -> Choice:
        message = ReplyMessage("assistant", self.known_of(index).echo + reply.text)
        ids = reply.ids if self.ask.token_ids else UNSET
        return Choice(index, message, self._logprobs(reply), reply.finish, reply.stop_reason, ids)

    def _delta(self, index: int, output: OutputLike) -> ChunkChoice:
        ids = output.ids if self.ask.token_ids else UNSET
        return ChunkChoice(index, {"content": output.text}, self._logprobs(output), token_ids=ids)

    def _logprobs(self, told: OutputLike) -> ChoiceLogprobs | None:
        return None if self.ask.logprobs is None else chat_logprobs(told.logprobs or (), self.ask.tokens_as_ids)

    def _chunk(self, choice: ChunkChoice, prompt_ids: list[int] | Unset = UNSET) -> ChatChunk:
        return self._of([choice], self.tally.usage() if self.ask.continuous_usage else UNSET, prompt_ids)

    def _of(self, choices: list[ChunkChoice], usage: Usage | Unset, prompt_ids: list[int] | Unset = UNSET) -> ChatChunk:
        head = self.head
        return ChatChunk(head.id, "chat.completion.chunk", head.created, head.model, choices, usage, prompt_ids)
