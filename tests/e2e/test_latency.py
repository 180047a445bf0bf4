"""How long a person waits: a session's later turns, and running replies beside a long prompt."""

from __future__ import annotations

import asyncio
import statistics
from itertools import pairwise
from pathlib import Path

import pytest

from tests.conftest import Record
from tests.e2e.harness import Heard, chat, greedy, hear, ids_prompt, run
from tokenspeed.engine import AsyncEngine, Stream
from tokenspeed.messages.tokenizer import Chat

TURNS = 6
FIRST_TURN_WORDS = 480
TURN_WORDS = 32
REPLY_TOKENS = 100
LONG_PROMPT_TOKENS = 6000
PAUSE_S_MAX = 1.5
WORDS = "the parser reads a line of the file and keeps each token with its place so that an error can name it"


def _words(seed: int, count: int) -> str:
    words = WORDS.split()
    return " ".join(words[(seed * 5 + i * i) % len(words)] for i in range(count))


async def _timed(engine: AsyncEngine, prompt: Chat, tokens: int) -> tuple[Heard, float]:
    """Return the reply and the seconds to its first token."""
    begin = asyncio.get_running_loop().time()
    reply = await hear(engine.generate(prompt, greedy(tokens)))
    return reply, reply.times[0] - begin


@pytest.mark.prove(shows="turn 6 of a session: at least 90% of the prompt cached, first token in a third", limit_s=300)
def test_later_turns_start_early(demo_model: Path, proof: Record) -> None:
    async def work(engine: AsyncEngine) -> tuple[Heard, float, float]:
        contents = [_words(0, FIRST_TURN_WORDS)]
        for turn in range(1, TURNS):
            reply, _ = await _timed(engine, chat(*contents), REPLY_TOKENS)
            contents += [reply.text, _words(turn, TURN_WORDS)]
        warm, warm_s = await _timed(engine, chat(*contents), 2)
        cold_times = []
        for _ in range(3):
            await engine.flush_cache()
            cold, cold_s = await _timed(engine, chat(*contents), 2)
            assert cold.cached_tokens == 0
            assert cold.ids == warm.ids
            cold_times.append(cold_s)
        return warm, warm_s, statistics.median(cold_times)

    warm, warm_s, cold_s = run(work, demo_model)
    proof(
        prompt_tokens=warm.prompt_tokens,
        cached_tokens=warm.cached_tokens,
        ttft_ms_warm=round(warm_s * 1e3),
        ttft_ms_cold=round(cold_s * 1e3),
        ratio=round(warm_s / cold_s, 3),
    )
    assert warm.cached_tokens >= 0.9 * warm.prompt_tokens
    assert warm_s < cold_s / 3


@pytest.mark.prove(shows="three running streams beside a 6,000-token prompt never pause over 1.5 s", limit_s=300)
def test_a_long_prompt_does_not_stop_running_replies(demo_model: Path, proof: Record) -> None:
    async def timed(stream: Stream, times: list[float]) -> None:
        while True:
            await anext(stream)
            times.append(asyncio.get_running_loop().time())

    async def work(engine: AsyncEngine) -> tuple[list[float], float, int]:
        loop = asyncio.get_running_loop()
        times: list[list[float]] = [[], [], []]
        streams = [engine.generate(ids_prompt(seed, 40), greedy(2000)) for seed in range(3)]
        readers = [asyncio.ensure_future(timed(*pair)) for pair in zip(streams, times, strict=True)]
        while min(map(len, times)) < 4:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        begin = loop.time()
        await anext(engine.generate(ids_prompt(99, LONG_PROMPT_TOKENS), greedy(1)))
        end = loop.time()
        for stream, reader in zip(streams, readers, strict=True):
            stream.cancel()
            await asyncio.gather(reader, return_exceptions=True)
        inside = [[at for at in each if begin <= at <= end] for each in times]
        worst = max(inside, key=lambda each: max(map(_gap, pairwise([begin, *each, end]))))
        return [_gap(pair) for pair in pairwise([begin, *worst, end])], end - begin, min(map(len, inside))

    gaps, prefill_s, tokens = run(work, demo_model)
    chunk_step_s = statistics.median(gaps[-len(gaps) // 4 :])  # at the longest context
    proof(
        pause_ms_max=round(max(gaps) * 1e3),
        chunk_step_ms=round(chunk_step_s * 1e3),
        prefill_s=round(prefill_s, 2),
        tokens_meanwhile=tokens,
    )
    assert max(gaps) <= PAUSE_S_MAX
    assert max(gaps) <= 2 * chunk_step_s


def _gap(pair: tuple[float, float]) -> float:
    return pair[1] - pair[0]
