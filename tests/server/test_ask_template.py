from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tokenspeed.errors import UserError
from tokenspeed.server.ask_template import VARIABLES_MAX, request_template, template_variables


@pytest.mark.parametrize("given", [None, {}, {"enable_thinking": False}, {"a": [1, {"b": None}], "é": "x"}])
def test_variables_are_json(given: dict[str, Any] | None) -> None:
    assert template_variables(given) == (msgspec.json.encode(given) if given else b"")


@pytest.mark.parametrize(
    ("given", "param"),
    [
        ({"messages": []}, "chat_template_kwargs.messages"),
        ({"bos_token": "x"}, "chat_template_kwargs.bos_token"),
        ({"two words": 1}, "chat_template_kwargs"),
        ({"": 1}, "chat_template_kwargs"),
        ({f"a{index}": 1 for index in range(VARIABLES_MAX + 1)}, "chat_template_kwargs"),
        ({"a": {1, (2,)}, "b": object()}, "chat_template_kwargs"),
    ],
)
def test_what_no_template_may_be_given_is_named(given: dict[str, Any], param: str) -> None:
    with pytest.raises(UserError) as caught:
        template_variables(given)
    assert (caught.value.status, caught.value.param) == (400, param)


def test_a_template_is_taken_only_where_it_is_trusted() -> None:
    assert request_template(None, trusted=False) == request_template("", trusted=False) == ""
    assert request_template("{{ 1 }}", trusted=True) == "{{ 1 }}"
    with pytest.raises(UserError, match="--trust-request-chat-template") as caught:
        request_template("{{ 1 }}", trusted=False)
    assert (caught.value.code, caught.value.param) == ("unsupported_parameter", "chat_template")
