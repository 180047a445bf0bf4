"""The demo model's greedy tokens equal those of transformers, however the engine comes to them.

The prompts were committed before any engine ran them. Short forms of every way run in `make test`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.conftest import Record
from tests.e2e.harness import Heard, chat, greedy, hear, hear_all, run
from tests.reference import Reference, assert_equal_tokens
from tokenspeed.config import PAGE_TOKENS_CPU, ModelConfig, TokenizerConfig
from tokenspeed.engine import AsyncEngine
from tokenspeed.engine.context import kv_bytes_per_token
from tokenspeed.formats.checkpoint import describe
from tokenspeed.messages.tokenizer import Chat
from tokenspeed.text.prompt import load_prompt_builder

pytestmark = pytest.mark.long

PROMPTS = json.loads((Path(__file__).parents[1] / "data" / "prompts.json").read_text())
BATCH = 16
TOKENS = 64
SHORT_TOKENS = 6
SHORT_PROMPTS = 2
TIGHT_CONTEXT = 2048


class Ways(NamedTuple):
    """Replies to the same prompts by different ways, and how often a request was retracted."""

    replies: dict[str, list[Heard]]
    retractions: int


def _chats(count: int) -> list[Chat]:
    by_length = sorted(PROMPTS, key=lambda prompt: len(prompt["content"]))
    return [chat(prompt["content"]) for prompt in by_length[:count]]


@cache
def prompt_ids(model: Path) -> dict[bytes, list[int]]:
    """Return the ids of every prompt, by its messages."""
    config = TokenizerConfig(model=ModelConfig(path=str(model), served_name="demo", max_model_len=8192))
    builder = load_prompt_builder(config)
    return {prompt.messages: builder.ids(prompt).tolist() for prompt in _chats(len(PROMPTS))}


def _check(model: Path, prompts: Sequence[Chat], replies: Sequence[Heard]) -> None:
    ids = [prompt_ids(model)[prompt.messages] for prompt in prompts]
    assert [reply.prompt_tokens for reply in replies] == list(map(len, ids))
    runs = zip(ids, (reply.ids for reply in replies), strict=True)
    assert_equal_tokens(Reference(model), runs)


def _every_way(model: Path, prompts: list[Chat], tokens: int, overlap: int, dtype: str = "float32") -> Ways:
    """Return the replies alone and cold, alone and warm, and in batches of 16, cold and warm."""

    async def work(engine: AsyncEngine) -> Ways:
        ways: dict[str, list[Heard]] = {"alone, cold": [], "alone, warm": []}
        for prompt in prompts:
            await engine.flush_cache()
            for replies in ways.values():
                replies.append(await hear(engine.generate(prompt, greedy(tokens))))
        for temperature in ("cold", "warm"):
            if temperature == "cold":
                await engine.flush_cache()
            batches = [prompts[:BATCH], prompts[BATCH:] + prompts[: 2 * BATCH - len(prompts)]]
            replies = [reply for batch in batches if batch for reply in await hear_all(engine, batch, greedy(tokens))]
            ways[f"batched, {temperature}"] = replies[: len(prompts)]
        return Ways(ways, (await engine.stats()).retractions)

    return run(work, model, overlap=overlap, dtype=dtype)


def _squeezed(model: Path, prompts: Sequence[Chat], tokens: int) -> Ways:
    """Return the replies from a pool that holds one full context for all of them."""
    pages = 1 + TIGHT_CONTEXT // PAGE_TOKENS_CPU
    pool_bytes = pages * PAGE_TOKENS_CPU * kv_bytes_per_token(describe(model), "float32")

    async def work(engine: AsyncEngine) -> Ways:
        replies = await hear_all(engine, prompts, greedy(tokens))
        return Ways({"squeezed": replies}, (await engine.stats()).retractions)

    settings = {"max_model_len": TIGHT_CONTEXT, "kv_cache_bytes": pool_bytes, "admission_growth_tokens": 0}
    return run(work, model, dtype="float32", **settings)


def test_a_few_tokens_are_equal_every_way(demo_model: Path) -> None:
    prompts = _chats(SHORT_PROMPTS)
    for replies in _every_way(demo_model, prompts, SHORT_TOKENS, overlap=1).replies.values():
        _check(demo_model, prompts, replies)


def test_the_default_mode_gives_one_reply_every_way(demo_model: Path) -> None:
    """Weights that stay quantised: other tokens than transformers', but the same alone, batched, cold and warm."""
    ways = _every_way(demo_model, _chats(SHORT_PROMPTS), 2 * SHORT_TOKENS, overlap=1, dtype="auto").replies
    first, *others = ([reply.ids for reply in replies] for replies in ways.values())
    assert all(ids == first for ids in others)


@pytest.mark.prove(shows="20 prompts x 64 tokens equal transformers: alone, batched, cold, warm", limit_s=1500)
@pytest.mark.parametrize("overlap", [1, 0])
def test_tokens_are_equal_every_way(demo_model: Path, overlap: int, proof: Record) -> None:
    prompts = _chats(len(PROMPTS))
    ways = _every_way(demo_model, prompts, TOKENS, overlap)
    for name, replies in ways.replies.items():
        print(name)
        _check(demo_model, prompts, replies)
    warm = ways.replies["alone, warm"]
    assert all(reply.cached_tokens >= (reply.prompt_tokens - 1) // 16 * 16 for reply in warm)
    proof(ways=list(ways.replies), tokens=sum(len(reply.ids) for replies in ways.replies.values() for reply in replies))


@pytest.mark.prove(shows="20 prompts x 64 tokens equal transformers while requests are retracted", limit_s=900)
def test_tokens_are_equal_when_requests_are_retracted(demo_model: Path, proof: Record) -> None:
    prompts = _chats(len(PROMPTS))
    ways = _squeezed(demo_model, prompts, TOKENS)
    assert ways.retractions > 0
    _check(demo_model, prompts, ways.replies["squeezed"])
    proof(retractions=ways.retractions, tokens=sum(len(reply.ids) for reply in ways.replies["squeezed"]))
