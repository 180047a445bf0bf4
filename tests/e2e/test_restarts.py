"""An actor is killed or stopped in the middle of four streams: each goes on with equal tokens."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from itertools import pairwise, permutations
from pathlib import Path

import pytest

from tests.conftest import Record
from tests.e2e.harness import Heard, greedy, hear, ids_prompt, run
from tokenspeed.engine import AsyncEngine, Output, Stream
from tokenspeed.errors import EngineError

ACTORS = ("tokenizer", "scheduler", "executor", "detokenizer")
STREAMS = 4
TOKENS = 120
SAMPLING = greedy(TOKENS, frequency_penalty=0.3, repetition_penalty=1.1, logprobs=1)
STALL_LIMIT_S = 1.5

pytestmark = pytest.mark.kill


async def _first_outputs(stream: Stream, count: int) -> list[Output]:
    return [await anext(stream) for _ in range(count)]


def _assert_told(replies: list[Heard], calm: list[Heard]) -> None:
    """Hold the log-probabilities of replies against those of undisturbed ones."""
    for reply, other in zip(replies, calm, strict=True):
        assert [position.token.id for position in reply.logprobs] == reply.ids
        assert [position.offset for position in reply.logprobs] == [position.offset for position in other.logprobs]
        wanted = [position.token.logprob for position in other.logprobs]
        assert [position.token.logprob for position in reply.logprobs] == pytest.approx(wanted, abs=1e-3)


async def _undisturbed(engine: AsyncEngine) -> tuple[list[Heard], float]:
    streams = [engine.generate(ids_prompt(seed, 40), SAMPLING) for seed in range(STREAMS)]
    replies = list(await asyncio.gather(*map(hear, streams)))
    return replies, max(_longest_pause(reply.times) for reply in replies)


async def _strike(engine: AsyncEngine, blow: signal.Signals, *actors: str) -> tuple[list[Heard], float]:
    """Open the streams, strike `actors` at once when all of them run, and read them to their end.

    Returns the replies and the longest silence of any stream in seconds.
    """
    streams = [engine.generate(ids_prompt(seed, 40), SAMPLING) for seed in range(STREAMS)]
    heads = await asyncio.gather(*(_first_outputs(stream, 3) for stream in streams))
    loop = asyncio.get_running_loop()
    struck = loop.time()
    for actor in actors:
        os.kill(engine.health().actors[actor].pid, blow)
    tails = await asyncio.wait_for(asyncio.gather(*map(hear, streams)), 30.0)
    silence = max(_longest_pause([struck, *tail.times]) for tail in tails)
    replies = [
        tail._replace(
            ids=[token for output in head for token in output.ids] + tail.ids,
            text="".join(output.text for output in head) + tail.text,
            logprobs=[position for output in head for position in output.logprobs or []] + list(tail.logprobs),
        )
        for head, tail in zip(heads, tails, strict=True)
    ]
    return replies, silence


def _kill_after(silence_s: float, pid: int) -> None:
    """Kill a process after a time in which this loop reads nothing and the actors finish the replies."""
    time.sleep(silence_s)
    os.kill(pid, signal.SIGKILL)


def _longest_pause(times: list[float]) -> float:
    return max(later - earlier for earlier, later in pairwise(times))


async def _up_again(engine: AsyncEngine, actor: str, limit_s: float) -> float:
    loop = asyncio.get_running_loop()
    begin = loop.time()
    while not engine.ready:
        assert loop.time() - begin < limit_s, f"{actor} did not come back: {engine.health()}"
        await asyncio.sleep(0.02)
    reply = await asyncio.wait_for(hear(engine.generate(ids_prompt(9, 10), greedy(4))), limit_s)
    assert len(reply.ids) == 4
    return loop.time() - begin


@pytest.mark.parametrize("actor", ACTORS)
def test_killed(tiny_model: Path, actor: str) -> None:
    async def work(engine: AsyncEngine) -> None:
        calm, _ = await _undisturbed(engine)
        replies, _ = await _strike(engine, signal.SIGKILL, actor)
        assert [reply.ids for reply in replies] == [reply.ids for reply in calm]
        assert [reply.text for reply in replies] == [reply.text for reply in calm]
        _assert_told(replies, calm)
        await _up_again(engine, actor, 10.0)
        assert engine.health().actors[actor].restarts == 1

    run(work, tiny_model)


@pytest.mark.parametrize("actor", ACTORS)
def test_stopped(tiny_model: Path, actor: str) -> None:
    async def work(engine: AsyncEngine) -> None:
        calm, _ = await _undisturbed(engine)
        replies, _ = await _strike(engine, signal.SIGSTOP, actor)
        assert [reply.ids for reply in replies] == [reply.ids for reply in calm]
        assert [reply.text for reply in replies] == [reply.text for reply in calm]
        await _up_again(engine, actor, 10.0)

    run(work, tiny_model, stall_limit_s=STALL_LIMIT_S)


def test_counters_go_on_and_what_is_computed_again_is_told(tiny_model: Path) -> None:
    async def work(engine: AsyncEngine) -> None:
        await _undisturbed(engine)
        calm = await engine.stats()
        assert (calm.losses, engine.meter.resumed) == (0, 0)
        await _strike(engine, signal.SIGKILL, "scheduler")
        after = await engine.stats()
        assert after.steps > calm.steps
        assert sum(after.step_tokens) == after.steps
        assert engine.meter.resumed == STREAMS
        assert engine.meter.resumed_tokens >= STREAMS * 43
        await _up_again(engine, "scheduler", 10.0)
        await _strike(engine, signal.SIGKILL, "executor")
        last = await engine.stats()
        assert last.steps > after.steps
        assert 0 < last.losses <= STREAMS
        assert last.tokens_lost >= last.losses * 40
        assert (engine.load().running, engine.load().waiting) == (0, 0)

    run(work, tiny_model)


def test_requests_sent_while_an_actor_is_down_are_served(tiny_model: Path) -> None:
    async def work(engine: AsyncEngine) -> None:
        for actor in ACTORS:
            os.kill(engine.health().actors[actor].pid, signal.SIGKILL)
            streams = [engine.generate(ids_prompt(seed, 10), greedy(5)) for seed in range(4)]
            replies = await asyncio.wait_for(asyncio.gather(*map(hear, streams)), 15.0)
            assert all(len(reply.ids) == 5 for reply in replies)

    run(work, tiny_model)


def test_two_actors_killed_at_once(tiny_model: Path) -> None:
    """In either order: one may die while the other has no process yet."""

    async def work(engine: AsyncEngine) -> None:
        calm, _ = await _undisturbed(engine)
        for pair in permutations(("tokenizer", "scheduler", "detokenizer"), 2):
            replies, _ = await _strike(engine, signal.SIGKILL, *pair)
            assert [reply.ids for reply in replies] == [reply.ids for reply in calm], pair
            assert [reply.text for reply in replies] == [reply.text for reply in calm], pair
            await _up_again(engine, pair[0], 10.0)

    run(work, tiny_model)


def test_what_a_dead_actor_had_said_is_heard(tiny_model: Path) -> None:
    """The scheduler has the verdicts already, so nobody would say the ends of these replies again."""

    async def work(engine: AsyncEngine) -> None:
        calm, _ = await _undisturbed(engine)
        streams = [engine.generate(ids_prompt(seed, 40), SAMPLING) for seed in range(STREAMS)]
        await asyncio.gather(*(stream.accepted() for stream in streams))
        _kill_after(3.0, engine.health().actors["detokenizer"].pid)
        replies = await asyncio.wait_for(asyncio.gather(*map(hear, streams)), 15.0)
        assert [reply.text for reply in replies] == [reply.text for reply in calm]

    run(work, tiny_model)


def test_an_actor_that_dies_again_and_again_is_given_up(tiny_model: Path) -> None:
    async def work(engine: AsyncEngine) -> None:
        loop = asyncio.get_running_loop()
        limit = loop.time() + 40.0
        while engine.health().state != "lost":
            assert loop.time() < limit
            actor = engine.health().actors["tokenizer"]
            if actor.state == "ready":
                os.kill(actor.pid, signal.SIGKILL)
                stream = engine.generate(ids_prompt(1, 20), greedy(2))  # for the last life: nobody reads it
            await asyncio.sleep(0.05)
        with pytest.raises(EngineError, match="lost"):
            await hear(stream)
        with pytest.raises(EngineError):
            engine.generate(ids_prompt(1, 20), greedy(2))

    run(work, tiny_model)


@pytest.mark.prove(
    shows="each actor killed or stopped in turn, demo model: four streams go on with equal tokens", limit_s=900
)
def test_demo_model_survives_every_blow(demo_model: Path, proof: Record) -> None:
    async def work(engine: AsyncEngine) -> None:
        calm, _ = await _undisturbed(engine)
        for actor in ACTORS:
            for blow in (signal.SIGKILL, signal.SIGSTOP):
                replies, silence_s = await _strike(engine, blow, actor)
                assert [reply.ids for reply in replies] == [reply.ids for reply in calm]
                assert [reply.text for reply in replies] == [reply.text for reply in calm]
                up_s = await _up_again(engine, actor, 10.0)
                proof(actor=actor, blow=blow.name, silence_s_max=round(silence_s, 2), served_again_s=round(up_s, 2))

    run(work, demo_model)


def test_a_request_that_kills_its_executor_again_and_again_is_ended_alone(tiny_model: Path) -> None:
    """A long prompt stands in for it: it is in a step, without output, at each death."""

    async def work(engine: AsyncEngine) -> None:
        fatal = asyncio.ensure_future(hear(engine.generate(ids_prompt(1, 2000), greedy(4))))
        loop = asyncio.get_running_loop()
        for _ in range(3):
            limit = loop.time() + 15.0
            while not (engine.ready and (await engine.stats()).requests_running):
                assert loop.time() < limit
                await asyncio.sleep(0.002)
            os.kill(engine.health().actors["executor"].pid, signal.SIGKILL)
            while engine.ready:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        with pytest.raises(EngineError, match="3 times"):
            await asyncio.wait_for(fatal, 20.0)
        await _up_again(engine, "executor", 15.0)

    run(work, tiny_model, chunked_prefill_size=16)
