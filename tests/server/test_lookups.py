from __future__ import annotations

from typing import Any

import pytest

from tests.server.doors import HI, Door, knock
from tests.server.fake_engine import BOS


async def answer(door: Door, path: str, **body: Any) -> tuple[int, Any]:
    reply = await door.client.post(path, json=body)
    return reply.status_code, reply.json()


@pytest.mark.parametrize("version", ["", "/v1"])
def test_text_to_ids_and_back(version: str) -> None:
    async def test(door: Door) -> None:
        status, told = await answer(door, f"{version}/tokenize", prompt="Hö", return_token_strs=True)
        assert status == 200
        assert told == {
            "count": 4,
            "max_model_len": 2048,
            "tokens": [BOS, 72, 195, 182],
            "token_strs": ["<s>", "H", "\\xc3", "\\xb6"],
        }
        assert await answer(door, f"{version}/detokenize", tokens=told["tokens"]) == (200, {"prompt": "<s>Hö"})
        bare = await answer(door, f"{version}/tokenize", prompt="Hi", add_special_tokens=False, model=None)
        assert bare[1]["tokens"] == [72, 105]
        assert bare[1]["token_strs"] is None
        assert door.engine.asked == []

    knock(test)


def test_a_conversation_is_what_chat_would_send() -> None:
    async def test(door: Door) -> None:
        told = (await answer(door, "/tokenize", **HI))[1]
        await door.chat()
        assert bytes(told["tokens"]) == door.engine.asked[0][0].messages  # type: ignore[union-attr]

    knock(test)


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/tokenize", {}, "prompt"),
        ("/tokenize", {"prompt": "a", **HI}, "prompt"),
        ("/tokenize", {"prompt": "a", "add_generation_prompt": True}, "add_generation_prompt"),
        ("/tokenize", {**HI, "add_special_tokens": True}, "add_special_tokens"),
        ("/tokenize", {"messages": []}, "messages"),
        ("/tokenize", {"prompt": 3}, "prompt"),
        ("/detokenize", {}, "tokens"),
        ("/detokenize", {"tokens": [-1]}, "tokens"),
        ("/detokenize", {"tokens": [70_000]}, "tokens"),
        ("/detokenize", {"tokens": [2**40]}, "tokens"),
    ],
)
def test_a_wrong_field_is_named(path: str, body: dict[str, Any], param: str) -> None:
    async def test(door: Door) -> None:
        status, told = await answer(door, path, **body)
        assert (status, told["error"]["param"]) == (400, param)

    knock(test)


def test_another_model_is_404() -> None:
    async def test(door: Door) -> None:
        for path, body in (("/tokenize", {"prompt": "a"}), ("/detokenize", {"tokens": []})):
            assert (await answer(door, path, model="other", **body))[0] == 404

    knock(test)
