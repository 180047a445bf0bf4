"""What text costs: a long session's next turn, a cold one, a short prompt; and each token of a reply.

Prompts go through the tokenizer's own builder: template, cut, cache, encoder. A reply goes through
one output stream, without and with stop strings, and through the whole detokenizer actor in batches
of 16 requests as the scheduler sends them.

Invariant: no text is encoded twice by one builder but the session's past.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import statistics
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from tokenspeed.actors.detokenizer import DetokenizerActor
from tokenspeed.actors.outbox import Outbox
from tokenspeed.config import DetokenizerConfig, ModelConfig, TokenizerConfig
from tokenspeed.messages.base import Message, pack_ids
from tokenspeed.messages.detokenizer import StreamOpening, TokenBatch, TokenEntry
from tokenspeed.messages.scheduler import StreamSettings
from tokenspeed.messages.tokenizer import Chat
from tokenspeed.text.output_stream import OutputStream
from tokenspeed.text.prompt import PromptBuilder, load_prompt_builder
from tokenspeed.text.vocabulary import load_vocabulary
from tokenspeed_tools.bench_suite import written
from tokenspeed_tools.bench_suite.model import demo_model
from tokenspeed_tools.bench_suite.part import Measure, Part, Sizes, Values, time_of
from tokenspeed_tools.bench_suite.timing import each_us, seconds_of

TURN_CHARS = 3_000
STREAMS = 16
STOPS = ("\nUser:", "</answer>")
Turns = list[dict[str, str]]


@contextlib.contextmanager
def prepare(sizes: Sizes) -> Iterator[Measure]:
    """Load the demo's vocabulary and encode a session of `session_tokens`."""
    model = demo_model()
    builder = load_prompt_builder(TokenizerConfig(model=model))
    session = session_of(builder, sizes["session_tokens"])
    reply = reply_of(builder, sizes["reply_tokens"])
    token_bytes = load_vocabulary(model.path).token_bytes
    fresh = itertools.count(1)

    def measure(number: int) -> Values:
        turns = [[*session, said("user", next(fresh), sizes["turn_chars"])] for _ in range(sizes["turns"])]
        cold = [said(turn["role"], next(fresh), len(turn["content"])) for turn in session]
        short = [[said("user", next(fresh), 100)] for _ in range(sizes["short_prompts"])]
        return {
            "turn_cached_ms": 1e3 * built_s(builder, turns),
            "session_cold_ms": 1e3 * built_s(builder, [cold]),
            "short_prompt_us": 1e6 * built_s(builder, short),
            "stream_us_per_token": stream_us(token_bytes, reply, (), sizes["budget_ms"]),
            "stream_with_stops_us_per_token": stream_us(token_bytes, reply, STOPS, sizes["budget_ms"]),
            "detokenizer_us_per_token": asyncio.run(detokenizer_us(model, reply, sizes["budget_ms"])),
        }

    yield measure


def said(role: str, seed: int, chars: int) -> dict[str, str]:
    """Return a message that nobody has sent before."""
    return {"role": role, "content": f"{seed} {written.text(seed, chars)}"}


def build(builder: PromptBuilder, turns: Turns) -> int:
    """Return the tokens of a conversation."""
    return len(builder.ids(Chat(json.dumps(turns).encode())))


def built_s(builder: PromptBuilder, conversations: list[Turns]) -> float:
    """Return the seconds that building one of them takes, at the median."""
    return statistics.median(seconds_of(partial(build, builder, turns)) for turns in conversations)


def session_of(builder: PromptBuilder, tokens: int) -> Turns:
    """Return a conversation of at least `tokens`, encoded once."""
    session: Turns = []
    for seed in itertools.count(100_000, 2):
        session += [said("user", seed, TURN_CHARS), said("assistant", seed + 1, TURN_CHARS // 4)]
        if build(builder, session) >= tokens:
            return session
    raise AssertionError("counting has no end")


def reply_of(builder: PromptBuilder, tokens: int) -> list[int]:
    """Return the ids of a text, `tokens` of them."""
    ids = builder.ids(Chat(json.dumps([said("user", 1_000_000, 8 * tokens)]).encode()))
    return ids.tolist()[-tokens:]


def stream_us(token_bytes: Sequence[bytes], ids: list[int], stop: tuple[str, ...], budget_ms: float) -> float:
    """Return the microseconds of an id that comes alone."""
    single = [[token] for token in ids]

    def reply() -> None:
        stream = OutputStream(token_bytes, stop)
        for one in single:
            stream.push(one)

    return each_us(reply, budget_ms) / len(ids)


class Sink(Outbox):
    """Takes every message and keeps none."""

    def __init__(self) -> None:
        super().__init__(None, lambda: None)

    def send(self, receiver: str, message: Message) -> None:
        """Forget `message`."""


async def detokenizer_us(model: ModelConfig, ids: list[int], budget_ms: float) -> float:
    """Return the microseconds of an id in the actor, while `STREAMS` replies grow by one id a step."""
    actor = DetokenizerActor(DetokenizerConfig(model=model), Sink(), lambda text, limit_s: None)
    await actor.start()
    opening = StreamOpening(StreamSettings(STOPS, 4), 0)
    requests = itertools.count(1)

    def replies() -> None:
        first = next(requests) * STREAMS
        for step, token in enumerate(ids[: len(ids) // STREAMS]):
            packed = pack_ids([token])
            entries: list[Any] = [
                TokenEntry(first + stream, step, packed, "", None if step else opening) for stream in range(STREAMS)
            ]
            actor.receive("scheduler", TokenBatch(step, entries))

    return each_us(replies, budget_ms) / (len(ids) // STREAMS * STREAMS)


PART = Part(
    name="text",
    shows="a turn behind 50K cached tokens, a cold session, a short prompt; each token of a reply",
    about_s=15,
    rounds=7,
    sizes={
        "session_tokens": 50_000,
        "turns": 5,
        "turn_chars": 2_400,
        "short_prompts": 15,
        "reply_tokens": 128,
        "budget_ms": 100,
    },
    figures={
        "turn_cached_ms": time_of("ms"),
        "session_cold_ms": time_of("ms", "work"),
        "short_prompt_us": time_of("us"),
        "stream_us_per_token": time_of("us"),
        "stream_with_stops_us_per_token": time_of("us"),
        "detokenizer_us_per_token": time_of("us"),
    },
    prepare=prepare,
)
