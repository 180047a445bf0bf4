"""The forms in which a caller in Python may give prompts, to one list."""

from __future__ import annotations

from collections.abc import Sequence

from tokenspeed.errors import UserError
from tokenspeed.messages.base import pack_ids
from tokenspeed.messages.tokenizer import Chat, Ids, Prompt, Text

Given = str | Prompt | list[str] | list[Prompt]
GivenIds = list[int] | list[list[int]]


def prompts_of(prompt: Given | None, input_ids: GivenIds | None) -> tuple[list[Prompt], bool]:
    """Return the prompts, and whether they came as a list. Raises `UserError` unless one of the two is given."""
    if (prompt is None) == (input_ids is None):
        raise UserError("Give either prompt or input_ids.", param="prompt")
    if input_ids is not None:
        if input_ids and isinstance(input_ids[0], Sequence):
            return [_ids(each) for each in input_ids], True
        return [_ids(input_ids)], False
    assert prompt is not None
    if isinstance(prompt, str | Chat | Text | Ids):
        return [_text(prompt)], False
    return [_text(each) for each in prompt], True


def _text(prompt: str | Prompt) -> Prompt:
    return Text(prompt) if isinstance(prompt, str) else prompt


def _ids(ids: object) -> Ids:
    try:
        return Ids(pack_ids(ids))  # type: ignore[arg-type]
    except (TypeError, OverflowError):
        raise UserError("input_ids has something that is no token id; give integers.", param="input_ids") from None
