from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tokenspeed.server.schema import NEUTRAL, ChatMessage, ChatRequest, CompletionRequest
from tokenspeed.server.schema_generate import REFUSED, GenerateBody, SamplingBody


def untyped(*kinds: type[msgspec.Struct]) -> set[str]:
    return {field.name for kind in kinds for field in msgspec.structs.fields(kind) if field.type is Any}


def test_every_field_has_a_type_or_neutral_values() -> None:
    assert untyped(ChatRequest, CompletionRequest) == set(NEUTRAL)
    assert untyped(GenerateBody, SamplingBody) == set(REFUSED)


@pytest.mark.parametrize(
    ("kind", "names"), [(ChatRequest, ["messages"]), (CompletionRequest, ["prompt"]), (GenerateBody, [])]
)
def test_only_the_prompt_is_required(kind: type[msgspec.Struct], names: list[str]) -> None:
    assert [field.name for field in msgspec.structs.fields(kind) if field.required] == names


def test_what_is_absent_is_not_written() -> None:
    assert msgspec.json.encode(ChatMessage("user", "Hi")) == b'{"role":"user","content":"Hi"}'
