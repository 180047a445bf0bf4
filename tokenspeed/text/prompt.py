"""A request's prompt to token ids.

Puts template, tokenizer and cache together for the three forms of a prompt: a conversation, plain
text, and ids. Knows the limits of a prompt and tells the caller which one was passed; knows nothing
of requests, sampling or pages.

Invariant: BOS stands at most once at the beginning, and only the template's own words become
control tokens, beside those that the model itself has sampled in a reply that comes back.
"""

from __future__ import annotations

import logging
from array import array
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from tokenspeed.config import TokenizerConfig
from tokenspeed.errors import UserError
from tokenspeed.messages.tokenizer import Chat, Ids, Prompt, Text
from tokenspeed.text.conversation import read_messages
from tokenspeed.text.encoder import Draft, Encoder
from tokenspeed.text.ends import gather_ends, turn_ends_named
from tokenspeed.text.replies import Place, ReplyCache
from tokenspeed.text.requested import Job, RequestedTemplates
from tokenspeed.text.template import ChatTemplate
from tokenspeed.text.tokenizer import Tokenizer, load_tokenizer
from tokenspeed.text.trusted import plain, spans_of, trust

NO_TEMPLATE = (
    "The model has no chat template, so it cannot take messages: serve an instruct model, or put its "
    "chat_template.jinja beside the weights and start again."
)

logger = logging.getLogger(__name__)


def load_prompt_builder(config: TokenizerConfig) -> PromptBuilder:
    """Return the builder for the model in `config`; raise `StartError` if its files cannot be read."""
    model = config.model
    tokenizer = load_tokenizer(model.path, dummy=model.load_format == "dummy", overrides=model.hf_overrides)
    vocabulary = tokenizer.vocabulary
    template = None
    if vocabulary.template is not None:
        template = ChatTemplate(
            vocabulary.template,
            bos=vocabulary.mark_text(vocabulary.bos),
            eos=vocabulary.mark_text(vocabulary.eos),
            chars_max=config.template_chars_max,
            ms_max=config.template_ms_max,
        )
    return PromptBuilder(tokenizer, template, config)


class Begun(NamedTuple):
    """A prompt whose new pieces are still to be encoded. A conversation has a `place` for its reply."""

    draft: Draft
    param: str
    place: Place | None = None
    bos: int | None = None


class PromptBuilder:
    """Turns prompts into ids. Safe to share between threads."""

    def __init__(self, tokenizer: Tokenizer, template: ChatTemplate | None, config: TokenizerConfig) -> None:
        self._tokenizer = tokenizer
        self._template = template
        self._encoder = Encoder(tokenizer, config.piece_cache_bytes)
        self._replies = ReplyCache(tokenizer, config.reply_cache_bytes)
        self._tokens_max = config.model.max_model_len
        self._chars_max = config.template_chars_max
        self._ms_max = config.template_ms_max
        self._requested = RequestedTemplates()
        sample = self._sample()
        if sample is not None:
            self._warn_of_lost_marks(sample)
        self.vocab_tokens = tokenizer.vocab_tokens
        self.ends = gather_ends(tokenizer.vocabulary, self._end_mark(sample))
        self.end_ids = tuple(end.id for end in self.ends)

    def ids(self, prompt: Prompt, namespace: str = "") -> array[int]:
        """Return the ids of `prompt`, at least one, with room for at least one more.

        Raises `UserError` for messages that are malformed or that the template refuses, ids that
        the model does not have, an empty prompt, and (code "context_length_exceeded") a long one.
        """
        return self.finish(self.begin(prompt, namespace))

    def begin(self, prompt: Prompt, namespace: str = "") -> Begun:
        """Do what is quick: all but encoding the pieces that are new. Raises `UserError` as `ids` does."""
        match prompt:
            case Chat():
                return self._chat(prompt, namespace)
            case Text():
                return self._text(prompt, namespace)
            case Ids():
                return Begun(self._encoder.look_up([self._given(prompt)]), "prompt")

    def finish(self, begun: Begun) -> array[int]:
        """Return the ids of the prompt; as slow as its `draft.chars_missing` are many."""
        ids = self._encoder.complete(begun.draft)
        bos = self._tokenizer.vocabulary.bos
        if begun.place is not None and bos is not None and len(ids) > 1 and ids[0] == ids[1] == bos:
            del ids[0]
        if begun.bos is not None:
            ids.insert(0, begun.bos)
        self._check_length(len(ids), begun.param)
        return ids

    def learn(self, place: Place, text: str, ids: Sequence[int]) -> None:
        """Note the reply to a prompt: `text` was shown for `ids`, without the id that ended it."""
        self._replies.learn(place, text, ids)

    def rendered(self, chat: Chat) -> str:
        """Return the text of a conversation as the template writes it, with `trusted` spans."""
        variables = msgspec.json.decode(chat.variables) if chat.variables else {}
        variables["add_generation_prompt"] = chat.add_generation_prompt
        if chat.template:
            return self._requested.render(self._job(chat, variables))
        if self._template is None:
            raise UserError(NO_TEMPLATE, code="no_chat_template", param="messages")
        messages = read_messages(chat.messages, knows_developer=self._template.knows_developer)
        return self._template.render(messages, variables)

    def close(self) -> None:
        """End the process in which templates of requests ran."""
        self._requested.close()

    def _job(self, chat: Chat, variables: dict[str, Any]) -> Job:
        vocabulary = self._tokenizer.vocabulary
        return Job(
            source=chat.template,
            messages=chat.messages,
            variables=msgspec.json.encode(variables),
            bos=vocabulary.mark_text(vocabulary.bos),
            eos=vocabulary.mark_text(vocabulary.eos),
            chars_max=self._chars_max,
            ms_max=self._ms_max,
        )

    def _chat(self, chat: Chat, namespace: str) -> Begun:
        text = self.rendered(chat)
        trusted = spans_of(text)
        cut = self._tokenizer.cut_ends(plain(text), trusted)
        parts, place = self._replies.resolve(cut, trusted, namespace)
        return Begun(self._encoder.look_up(parts, namespace), "messages", place)

    def _text(self, text: Text, namespace: str) -> Begun:
        if len(text.text) > self._chars_max:
            raise UserError(
                f"The prompt is {len(text.text)} characters long; at most {self._chars_max} are allowed.",
                code="context_length_exceeded",
                param="prompt",
            )
        draft = self._encoder.look_up([text.text] if text.text else [], namespace)
        vocabulary = self._tokenizer.vocabulary
        bos = vocabulary.bos if text.add_special_tokens and vocabulary.add_bos else None
        return Begun(draft, "prompt", bos=bos)

    def _given(self, given: Ids) -> array[int]:
        if len(given.ids) % 4:
            raise UserError("The prompt's ids are no int32 array.", param="prompt")
        ids = array("i", given.ids)
        if ids and not 0 <= min(ids) <= max(ids) < self._tokenizer.vocab_tokens:
            wrong = next(token for token in ids if not 0 <= token < self._tokenizer.vocab_tokens)
            raise UserError(
                f"The prompt has the token id {wrong}; 0 to {self._tokenizer.vocab_tokens - 1} are allowed.",
                param="prompt",
            )
        return ids

    def _check_length(self, tokens: int, param: str) -> None:
        if tokens == 0:
            raise UserError("The prompt is empty; at least one token is needed.", param=param)
        if tokens >= self._tokens_max:
            raise UserError(
                f"This model's maximum context length is {self._tokens_max} tokens, and the prompt has {tokens}, "
                f"which leaves no room for a reply; shorten it to at most {self._tokens_max - 1}.",
                code="context_length_exceeded",
                param=param,
            )

    def _sample(self) -> str | None:
        """Return a short conversation as the template writes it, None if it writes none."""
        if self._template is None:
            return None
        turns: list[dict[str, Any]] = [
            {"role": trust("user"), "content": _ASKED},
            {"role": trust("assistant"), "content": _ANSWERED},
        ]
        try:
            return self._template.render(turns, {"add_generation_prompt": False})
        except UserError as error:
            logger.warning("The chat template refuses a short conversation: %s", error.message)
            return None

    def _end_mark(self, sample: str | None) -> set[int]:
        """Return the control token that the template writes after a reply, if it does."""
        if sample is None:
            return turn_ends_named(self._tokenizer.vocabulary)
        parts = self._tokenizer.cut(plain(sample), spans_of(sample))
        for part, following in zip(parts, [*parts[1:], ""], strict=True):
            if isinstance(part, str) and part.rstrip().endswith(_ANSWERED) and isinstance(following, int):
                return {following}
        return set()

    def _warn_of_lost_marks(self, sample: str) -> None:
        """Say if the template builds control marks in a way that trust cannot follow."""
        everywhere = self._tokenizer.cut(plain(sample), [(0, len(sample))])
        if everywhere != self._tokenizer.cut(plain(sample), spans_of(sample)):
            logger.warning(
                "The chat template builds control marks by operations that are not followed; "
                "they are encoded as plain text. Write them as literals in chat_template.jinja."
            )


_ASKED = "What is two and two?"
_ANSWERED = "Two and two is four."
