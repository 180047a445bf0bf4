"""Replies sampled by a model and sent back as history: all that was computed for them is found again."""

from __future__ import annotations

import asyncio
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.conftest import Record
from tests.e2e.harness import chat, hear, run
from tests.text.samples import config_for
from tokenspeed.config import PAGE_TOKENS_CPU
from tokenspeed.engine import AsyncEngine
from tokenspeed.sampling import SamplingParams
from tokenspeed.text.prompt import PromptBuilder, load_prompt_builder

pytestmark = pytest.mark.long

ASKED = "Write a few words, in any language or in code, about the number"
AT_ONCE = 8


class Turns(NamedTuple):
    """A conversation of two turns: what the first left in the cache, and what the second found there.

    `encodes_back` tells whether the second prompt begins with the ids of the first turn also for an
    encoder that knows the text alone.
    """

    pages_computed: int
    pages_found: int
    encodes_back: bool


@cache
def plain_builder(model: Path) -> PromptBuilder:
    return load_prompt_builder(config_for(model))


async def talk(engine: AsyncEngine, model: Path, number: int, sampling: SamplingParams) -> Turns:
    """Have a reply sampled and send it back with another question."""
    asked = f"{ASKED} {number}."
    first = await hear(engine.generate(chat(asked), sampling))
    again = chat(asked, first.text, "And then?")
    second = await hear(engine.generate(again, SamplingParams(max_tokens=1)))
    builder = plain_builder(model)
    ids = [*builder.ids(chat(asked)), *first.ids[:-1]]  # the last token was drawn, but never read
    encoded = builder.ids(again)[: len(ids)].tolist()
    return Turns(len(ids) // PAGE_TOKENS_CPU, second.cached_tokens // PAGE_TOKENS_CPU, encoded == ids)


def talk_all(model: Path, count: int, sampling: SamplingParams) -> list[Turns]:
    async def work(engine: AsyncEngine) -> list[Turns]:
        gate = asyncio.Semaphore(AT_ONCE)

        async def one(number: int) -> Turns:
            async with gate:
                return await talk(engine, model, number, sampling)

        return list(await asyncio.gather(*map(one, range(count))))

    return run(work, model)


def test_whole_pages_of_sampled_replies_are_found_again(tiny_model: Path) -> None:
    turns = talk_all(tiny_model, 10, SamplingParams(temperature=1.0, seed=7, max_tokens=40))
    assert sum(not each.encodes_back for each in turns) > 5  # else this shows nothing
    assert [each.pages_found >= each.pages_computed for each in turns] == [True] * 10


@pytest.mark.prove(shows="200 sampled replies sent back as history: all their whole pages are cached", limit_s=600)
def test_two_hundred_sampled_replies(demo_model: Path, proof: Record) -> None:
    turns = talk_all(demo_model, 200, SamplingParams(temperature=1.0, max_tokens=32))
    missing = [each for each in turns if each.pages_found < each.pages_computed]
    proof(
        replies=len(turns),
        replies_that_text_does_not_encode_back_to=sum(not each.encodes_back for each in turns),
        pages_computed=sum(each.pages_computed for each in turns),
        replies_with_pages_missing=len(missing),
    )
    assert not missing
