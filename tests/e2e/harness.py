"""What end-to-end tests share: run a coroutine against a started engine, read streams, count leftovers."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import uvloop

from tokenspeed.config import EngineConfig
from tokenspeed.engine import AsyncEngine, Stream
from tokenspeed.messages.base import pack_ids
from tokenspeed.messages.engine import PositionLogprobs, SchedulerStats
from tokenspeed.messages.tokenizer import Chat, Ids
from tokenspeed.sampling import SamplingParams

T = TypeVar("T")


class Heard(NamedTuple):
    """A whole reply as a client saw it; `times` are loop seconds of each output."""

    text: str
    ids: list[int]
    finish: str
    cached_tokens: int
    prompt_tokens: int
    times: list[float]
    logprobs: Sequence[PositionLogprobs] = ()
    prompt_logprobs: list[PositionLogprobs | None] | None = None
    stop_reason: str | int | None = None


def run(work: Callable[[AsyncEngine], Coroutine[Any, Any, T]], model: Path, **settings: Any) -> T:
    """Start an engine on `model`, await `work(engine)`, and check that closing leaves nothing behind."""

    async def main() -> T:
        async with started(model, **settings) as engine:
            return await work(engine)

    before = leftovers()
    result: T = uvloop.run(main())
    assert_nothing_remains(before)
    return result


@asynccontextmanager
async def started(model: Path, **settings: Any) -> AsyncIterator[AsyncEngine]:
    """Yield a started engine and close it."""
    engine = AsyncEngine(EngineConfig(model=str(model), **settings))
    await engine.start()
    try:
        yield engine
    finally:
        await engine.close()


def leftovers() -> tuple[frozenset[str], frozenset[int]]:
    """Return the shared segments and the child processes that exist now."""
    segments = frozenset(name for name in os.listdir("/dev/shm") if "tokenspeed" in name)
    return segments, frozenset(children(os.getpid()))


def assert_nothing_remains(before: tuple[frozenset[str], frozenset[int]]) -> None:
    """Fail if there is more than `before` (an engine beside this test has names for a moment too)."""
    for _ in range(20):
        if leftovers() == before:
            break
        time.sleep(0.05)
    assert leftovers() == before


def children(pid: int) -> list[int]:
    """Return the live child processes of `pid`, zombies left out."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                state, parent = (entry / "stat").read_text().rsplit(") ", 1)[1].split()[:2]
            except (FileNotFoundError, ProcessLookupError):
                continue
            if int(parent) == pid and state != "Z":
                found.append(int(entry.name))
    return sorted(found)


async def hear(stream: Stream) -> Heard:
    """Read `stream` to its end."""
    loop = asyncio.get_running_loop()
    text, ids, times = "", list[int](), list[float]()
    finish, cached, prompt = "", 0, 0
    logprobs: list[PositionLogprobs] = []
    of_prompt: list[PositionLogprobs | None] | None = None
    stop_reason: str | int | None = None
    async for output in stream:
        text += output.text
        ids += output.ids
        times.append(loop.time())
        finish, cached, prompt = output.finish, output.cached_tokens, output.prompt_tokens
        logprobs += output.logprobs or []
        if output.prompt_logprobs is not None:
            assert of_prompt is None, "the prompt's log-probabilities came twice"
            of_prompt = output.prompt_logprobs
        stop_reason = output.stop_reason
    return Heard(text, ids, finish, cached, prompt, times, logprobs, of_prompt, stop_reason)


async def hear_all(
    engine: AsyncEngine, prompts: Sequence[Chat | Ids], sampling: SamplingParams | Sequence[SamplingParams]
) -> list[Heard]:
    """Send all prompts at once and read every reply; `sampling` is one for all or one for each."""
    each = [sampling] * len(prompts) if isinstance(sampling, SamplingParams) else sampling
    streams = [engine.generate(prompt, settings) for prompt, settings in zip(prompts, each, strict=True)]
    return list(await asyncio.gather(*map(hear, streams)))


async def settled(engine: AsyncEngine) -> SchedulerStats:
    """Return the counters once nothing is queued, running or pinned any more (2 s at most)."""
    for _ in range(100):
        stats = await engine.stats()
        if stats.requests_waiting == stats.requests_running == stats.pages_zombie == stats.pages_owned == 0:
            break
        await asyncio.sleep(0.02)
    return stats


def chat(*contents: str) -> Chat:
    """Return a conversation in which user and assistant take turns."""
    roles = ("user", "assistant")
    return Chat(json.dumps([{"role": roles[i % 2], "content": text} for i, text in enumerate(contents)]).encode())


def ids_prompt(seed: int, length: int) -> Ids:
    """Return `length` arbitrary ordinary token ids that depend on `seed`."""
    return Ids(pack_ids((1000 + (seed * 7919 + i * 104729) % 40000) for i in range(length)))


def greedy(max_tokens: int, **more: Any) -> SamplingParams:
    """Return greedy sampling that always runs to `max_tokens`."""
    return SamplingParams(temperature=0.0, max_tokens=max_tokens, ignore_eos=True, **more)
