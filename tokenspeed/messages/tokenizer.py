"""What the tokenizer receives."""

from __future__ import annotations

import msgspec

from tokenspeed.messages.base import Message
from tokenspeed.sampling import SamplingParams


class Chat(msgspec.Struct, tag="chat", array_like=True, frozen=True, gc=False):
    """A conversation to render with the model's template. `messages` is a JSON list.

    `variables` is a JSON object of what the template is given besides, "" for nothing. A `template`
    of the caller's own takes the place of the model's.
    """

    messages: bytes
    add_generation_prompt: bool = True
    variables: bytes = b""
    template: str = ""


class Text(msgspec.Struct, tag="text", array_like=True, frozen=True, gc=False):
    """Plain text; `add_special_tokens` puts the model's BOS in front."""

    text: str
    add_special_tokens: bool = True


class Ids(msgspec.Struct, tag="ids", array_like=True, frozen=True, gc=False):
    """A prompt that is token ids already: int32 bytes."""

    ids: bytes


Prompt = Chat | Text | Ids


class GenerateRequest(Message, frozen=True):
    """One reply wanted from the engine.

    `request` is unique for one engine life. `attempt` counts how often the engine sent it: after a
    scheduler restart it comes again, with the ids that were delivered so far in `resume`
    (int32 bytes). `namespace` separates cached prefixes that must not be shared; `session` groups
    requests for fairness. The engine has drawn `sampling.seed` when the caller gave none, so that a
    resumed request draws the same tokens.
    """

    request: int
    attempt: int
    prompt: Prompt
    sampling: SamplingParams
    namespace: str = ""
    session: str = ""
    resume: bytes = b""


class CancelTokenize(Message, frozen=True):
    """Nobody waits for `request` any more: forget it, and answer with `Dropped` if it never left."""

    request: int


class Replied(Message, frozen=True):
    """The conversation `request` is over: `ids` (int32 bytes) were sampled and shown as `text`.

    It comes before any request of a caller who has seen the reply's end.
    """

    request: int
    text: str
    ids: bytes


TokenizerMessage = GenerateRequest | CancelTokenize | Replied
