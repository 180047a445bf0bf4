"""What is measured: time per output token and time to the first one, as a caller sees them.

TPOT is (time for 145 tokens - time for 17 tokens) / 128, both with fresh prompts of the same length,
so that the prompts' own time cancels. It is taken by the same two numbers from any engine that takes
token ids, which is what makes figures comparable.

Invariant: a time counts only if every reply has as many tokens as were asked for.
"""

from __future__ import annotations

import asyncio
import os
import random
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tokenspeed.engine import AsyncEngine, Stream
from tokenspeed.messages.base import pack_ids
from tokenspeed.messages.tokenizer import Ids
from tokenspeed.sampling import SamplingParams

SHORT_TOKENS, LONG_TOKENS = 17, 145
DECODE_REPEATS = 2
TTFT_REPEATS = 3
FIRST_ID = 256  # below are the bytes of a stand-in vocabulary


class Point(NamedTuple):
    """One place of the grid: `batch` requests at once, each with a prompt of `context_tokens`."""

    batch: int
    context_tokens: int


class Meter:
    """Times a started engine with random prompts."""

    def __init__(self, engine: AsyncEngine, seed: int, say: Callable[[str], None]) -> None:
        """`say` hears of each run."""
        self._engine = engine
        self._dice = random.Random(seed)
        self._say = say

    async def tpot_ms(self, point: Point) -> float:
        """Return milliseconds per output token and request."""
        await self._run_s(point, SHORT_TOKENS)  # first calls of new sizes are not what is measured
        short, long = [await self._median_s(point, tokens, DECODE_REPEATS) for tokens in (SHORT_TOKENS, LONG_TOKENS)]
        return (long - short) / (LONG_TOKENS - SHORT_TOKENS) * 1e3

    async def host_us(self, point: Point) -> dict[str, float]:
        """Return processor microseconds per decode step: of each actor, and of this process as "engine"."""
        pids = {name: actor.pid for name, actor in self._engine.health().actors.items()} | {"engine": os.getpid()}
        used, steps = [], []
        for tokens in (SHORT_TOKENS, LONG_TOKENS):
            before, steps_before = _used_us(pids), (await self._engine.stats()).steps
            await self._run_s(point, tokens)
            after, steps_after = _used_us(pids), (await self._engine.stats()).steps
            used.append({name: after[name] - before[name] for name in pids})
            steps.append(steps_after - steps_before)
        # The shorter run has the same prompts to read: what is left is the decode steps'.
        return {name: (used[1][name] - used[0][name]) / (steps[1] - steps[0]) for name in pids}

    async def ttft_ms(self, context_tokens: int) -> float:
        """Return milliseconds to the end of a reply of one token."""
        await self._run_s(Point(1, context_tokens), 1)
        return await self._median_s(Point(1, context_tokens), 1, TTFT_REPEATS) * 1e3

    async def _median_s(self, point: Point, new_tokens: int, repeats: int) -> float:
        return statistics.median([await self._run_s(point, new_tokens) for _ in range(repeats)])

    async def _run_s(self, point: Point, new_tokens: int) -> float:
        prompts = [self._prompt(point.context_tokens) for _ in range(point.batch)]
        sampling = SamplingParams(temperature=0.0, max_tokens=new_tokens, ignore_eos=True)
        begin_s = time.perf_counter()
        streams = [self._engine.generate(prompt, sampling) for prompt in prompts]
        counts = await asyncio.gather(*map(_tokens, streams))
        took_s = time.perf_counter() - begin_s
        if set(counts) != {new_tokens}:
            raise RuntimeError(f"replies of {sorted(set(counts))} tokens came, {new_tokens} were asked for")
        self._say(f"batch {point.batch}, context {point.context_tokens}, {new_tokens} new tokens: {took_s:.3f} s")
        return took_s

    def _prompt(self, tokens: int) -> Ids:
        vocab_tokens = self._engine.checkpoint.vocab_tokens
        return Ids(pack_ids(self._dice.randrange(FIRST_ID, vocab_tokens) for _ in range(tokens)))


def _used_us(pids: dict[str, int]) -> dict[str, float]:
    return {name: sum(map(_thread_us, Path(f"/proc/{pid}/task").iterdir())) for name, pid in pids.items()}


def _thread_us(thread: Path) -> float:
    """Return the processor time that a thread has had, in microseconds."""
    try:
        return int((thread / "schedstat").read_text().split()[0]) / 1e3
    except (FileNotFoundError, ProcessLookupError):
        return 0.0  # it has ended meanwhile


async def _tokens(stream: Stream) -> int:
    """Read `stream` to its end and return how many tokens came."""
    return sum([len(output.ids) async for output in stream])
