"""`/tokenize` and `/detokenize`: the ids of a text or a conversation, and the text of ids.

Owns their checks and answers, for both doors. Ids are those that a request with the same text would
have; a prompt of any length is counted.

Invariant: nothing is generated and nothing cached beyond what encoding caches.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from tokenspeed.config import RequestLimits
from tokenspeed.errors import UserError
from tokenspeed.messages.base import unpack_ids
from tokenspeed.messages.tokenizer import Prompt, Text
from tokenspeed.server.ask import chat_prompt, check_messages, check_model, label
from tokenspeed.server.ask_completions import ids_prompt
from tokenspeed.server.body import read_json
from tokenspeed.server.disconnect import unless_gone, until_gone
from tokenspeed.server.logprobs import piece_text
from tokenspeed.server.parse import decode_json
from tokenspeed.server.ports import EngineLike
from tokenspeed.server.schema import DetokenizeRequest, TokenizeRequest


class Tokens(msgspec.Struct, frozen=True):
    """The answer of `/tokenize`; `token_strs` is what each id adds to the text, if asked for."""

    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None = None


class TokensText(msgspec.Struct, frozen=True):
    """The answer of `/detokenize`."""

    prompt: str


async def tokenized(engine: EngineLike, body: TokenizeRequest) -> Tokens:
    """Answer `/tokenize`; raise `UserError`."""
    check_model(body.model, engine.model)
    ids = await engine.tokenize(_prompt(body), namespace=label("cache_salt", body.cache_salt))
    strings = list(map(piece_text, await engine.detokenize(ids))) if body.return_token_strs else None
    return Tokens(len(ids), engine.model.max_model_len, ids, strings)


async def detokenized(engine: EngineLike, body: DetokenizeRequest) -> TokensText:
    """Answer `/detokenize`; raise `UserError`."""
    check_model(body.model, engine.model)
    ids = unpack_ids(ids_prompt("tokens", body.tokens).ids)
    return TokensText(b"".join(await engine.detokenize(ids)).decode(errors="replace"))


def _prompt(body: TokenizeRequest) -> Prompt:
    if (body.prompt is None) == (body.messages is None):
        seen = "neither is there" if body.prompt is None else "both are there"
        raise UserError(f"Send either prompt or messages; {seen}.", param="prompt")
    if body.messages is None:
        assert body.prompt is not None
        if body.add_generation_prompt is not None:
            raise UserError("add_generation_prompt is only allowed with messages.", param="add_generation_prompt")
        return Text(body.prompt, body.add_special_tokens is not False)
    if body.add_special_tokens:
        raise UserError(
            "add_special_tokens is true, but the chat template writes the special tokens of messages; leave it out.",
            code="unsupported_parameter",
            param="add_special_tokens",
        )
    check_messages(body.messages)
    return chat_prompt(body.messages, body.add_generation_prompt)


class Lookup(NamedTuple):
    """What one path takes and how it is answered."""

    body: type[msgspec.Struct]
    answer: Callable[[EngineLike, Any], Awaitable[msgspec.Struct]]


TOKENIZE = Lookup(TokenizeRequest, tokenized)
DETOKENIZE = Lookup(DetokenizeRequest, detokenized)
LOOKUPS = {
    "/tokenize": TOKENIZE,
    "/detokenize": DETOKENIZE,
    "/v1/tokenize": TOKENIZE,
    "/v1/detokenize": DETOKENIZE,
}


class LookupDoor:
    """The endpoint of `lookup`. Bodies beyond `limits` are refused."""

    def __init__(self, lookup: Lookup, engine: EngineLike, limits: RequestLimits) -> None:
        self._lookup = lookup
        self._engine = engine
        self._limits = limits

    async def post(self, request: Request) -> Response:
        """Answer one request; raise `UserError`, `EngineError` or `ClientGone`."""
        body = decode_json(await read_json(request, self._limits), self._lookup.body)
        answer = self._answer(body)
        return Response(
            msgspec.json.encode(await unless_gone(answer, until_gone(request.receive))), media_type="application/json"
        )

    async def _answer(self, body: Any) -> msgspec.Struct:
        return await self._lookup.answer(self._engine, body)
