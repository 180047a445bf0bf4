from __future__ import annotations

from typing import Any

import msgspec

from tokenspeed.server.schema import NEUTRAL, ChatMessage, ChatRequest


def test_every_field_has_a_type_or_neutral_values() -> None:
    untyped = {field.name for field in msgspec.structs.fields(ChatRequest) if field.type is Any}
    assert untyped == set(NEUTRAL)


def test_only_messages_are_required() -> None:
    required = [field.name for field in msgspec.structs.fields(ChatRequest) if field.required]
    assert required == ["messages"]


def test_what_is_absent_is_not_written() -> None:
    assert msgspec.json.encode(ChatMessage("user", "Hi")) == b'{"role":"user","content":"Hi"}'
