"""`GET /v1/models` and `GET /v1/models/{model}`: what is served, and how much it can read.

Owns the catalogue entry. The context length stands under every name that clients look for.

Invariant: the list has exactly one entry, the model that `/v1/chat/completions` answers for.
"""

from __future__ import annotations

import time

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from tokenspeed.config import ModelConfig
from tokenspeed.generation import FIELDS, GenerationDefaults
from tokenspeed.server.ask import check_model
from tokenspeed.server.ports import EngineLike


class ModelCard(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of the catalogue; five names tell the context length in tokens.

    `generation_defaults` are for requests that leave the field out; their `source` is "" without any from the model.
    """

    id: str
    object: str = "model"
    created: int
    owned_by: str = "tokenspeed"
    max_model_len: int
    context_length: int
    context_window: int
    max_context_length: int
    max_input_tokens: int
    generation_defaults: dict[str, float | int | str]


class ModelList(msgspec.Struct, frozen=True, kw_only=True):
    """The catalogue."""

    object: str = "list"
    data: list[ModelCard]
    has_more: bool = False
    first_id: str
    last_id: str


def model_card(model: ModelConfig, created: int) -> ModelCard:
    """Return the entry of `model`."""
    tokens = model.max_model_len
    return ModelCard(
        id=model.served_name,
        created=created,
        max_model_len=tokens,
        context_length=tokens,
        context_window=tokens,
        max_context_length=tokens,
        max_input_tokens=tokens,
        generation_defaults=effective(model.defaults),
    )


def effective(defaults: GenerationDefaults) -> dict[str, float | int | str]:
    """Return what a request gets that says nothing, by field, and where it comes from."""
    sampling = defaults.sampling()
    return {name: getattr(sampling, name) for name in FIELDS} | {"source": defaults.source}


def model_list(card: ModelCard) -> ModelList:
    """Return the catalogue with `card` alone."""
    return ModelList(data=[card], first_id=card.id, last_id=card.id)


class ModelsDoor:
    """The endpoints."""

    def __init__(self, engine: EngineLike) -> None:
        self._model = engine.model
        self._card = model_card(engine.model, int(time.time()))

    async def index(self, _request: Request) -> Response:
        """Answer with the catalogue."""
        return _json(model_list(self._card))

    async def one(self, request: Request) -> Response:
        """Answer with one entry; an unknown name is 404 `model_not_found`."""
        check_model(request.path_params["model"], self._model)
        return _json(self._card)


def _json(body: msgspec.Struct) -> Response:
    return Response(msgspec.json.encode(body), media_type="application/json")
