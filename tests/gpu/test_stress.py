"""Two thousand requests, cancelled at random: nobody is ever shown another's token."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import numpy as np

from tests.conftest import Record
from tests.e2e.harness import hear, run
from tokenspeed.engine import AsyncEngine
from tokenspeed.messages.base import pack_ids
from tokenspeed.messages.tokenizer import Ids
from tokenspeed.sampling import SamplingParams

REQUESTS = 2000
OPEN_MAX = 160
PROMPTS = 48
TOKENS = 48
FORKS_PER_TOKENS = 1 / 1000


def _prompts() -> list[list[int]]:
    numbers = np.random.default_rng(5)
    return [numbers.integers(0, 128256, int(size)).tolist() for size in numbers.integers(3, 400, PROMPTS)]


def _sampling(number: int) -> SamplingParams:
    temperature = (0.0, 1.0)[number % 2]
    return SamplingParams(max_tokens=TOKENS, temperature=temperature, seed=number, ignore_eos=True)


def test_no_token_of_another_request(four_layers: Path, proof: Record) -> None:
    """Each reply, whole or cut by its cancel, is what the prompt gets when it is alone.

    In float32, so that company does not change a token; few slots and few pages, so that slots are
    reused at once and requests are retracted.
    """
    prompts = _prompts()
    chance = random.Random(17)

    async def work(engine: AsyncEngine) -> tuple[list[list[int]], list[tuple[int, list[int]]], int]:
        alone = [
            (await hear(engine.generate(Ids(pack_ids(ids)), _sampling(number)))).ids
            for number, ids in enumerate(prompts)
        ]
        gate = asyncio.Semaphore(OPEN_MAX)

        async def one(number: int) -> tuple[int, list[int]]:
            ids: list[int] = []
            leave_after = chance.choice([None, None, 1, 2, chance.randrange(TOKENS)])
            async with gate:
                stream = engine.generate(Ids(pack_ids(prompts[number])), _sampling(number))
                if chance.random() < 0.1:
                    await asyncio.sleep(chance.random() / 50)
                    stream.cancel()
                    return number, ids
                async for output in stream:
                    ids += output.ids
                    if leave_after is not None and len(ids) >= leave_after:
                        stream.cancel()
                        break
            return number, ids

        replies = await asyncio.gather(*(one(chance.randrange(PROMPTS)) for _ in range(REQUESTS)))
        stats = await engine.stats()
        assert stats.pages_owned == stats.pages_zombie == stats.pages_cached_leased == 0
        return alone, replies, stats.retractions

    alone, replies, retractions = run(
        work,
        four_layers,
        device="cuda",
        dtype="float32",
        load_format="dummy",
        max_model_len=512,
        max_num_seqs=48,
        chunked_prefill_size=512,
        kv_cache_bytes=120 * 64 * 4 * 8 * 128 * 2 * 4,
        admission_growth_tokens=0,
    )
    tokens = sum(len(ids) for _, ids in replies)
    wrong = [(number, ids) for number, ids in replies if ids != alone[number][: len(ids)]]
    for number, ids in wrong:
        at = next(i for i, (a, b) in enumerate(zip(ids, alone[number], strict=False)) if a != b)
        print(f"prompt {number}, output {at}: {ids[at]}, alone {alone[number][at]}")
    proof(requests=REQUESTS, tokens=tokens, parted=len(wrong), retractions=retractions)
    assert retractions > 0
    assert len(wrong) <= tokens * FORKS_PER_TOKENS
