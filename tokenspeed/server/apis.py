"""The requests that generate: for each path its body, what it asks, and how its answer is told.

Owns the table that both doors read, so that a path means the same on each.

Invariant: a path is in the table once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import msgspec

from tokenspeed.config import ModelConfig
from tokenspeed.server.ask import Ask, chat_ask
from tokenspeed.server.ask_completions import completion_ask
from tokenspeed.server.ask_generate import generate_ask
from tokenspeed.server.replies import ChatTeller
from tokenspeed.server.replies_completions import CompletionTeller
from tokenspeed.server.replies_generate import GenerateTeller
from tokenspeed.server.schema import ChatRequest, CompletionRequest
from tokenspeed.server.schema_generate import GenerateBody
from tokenspeed.server.telling import Teller


class Api(NamedTuple):
    """One path. `ask` takes a body, the model served, and what the transport knows of the session."""

    path: str
    body: type[msgspec.Struct]
    ask: Callable[[Any, ModelConfig, str], Ask]
    teller: type[Teller]


def apis(trust_request_chat_template: bool) -> tuple[Api, ...]:
    """Return the table; templates that come with requests are honoured only if they are trusted."""
    ask = partial(chat_ask, trust_request_chat_template=trust_request_chat_template)
    return (
        Api("/v1/chat/completions", ChatRequest, ask, ChatTeller),
        Api("/v1/completions", CompletionRequest, completion_ask, CompletionTeller),
        Api("/generate", GenerateBody, generate_ask, GenerateTeller),
    )
