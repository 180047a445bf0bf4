"""What is asked of every engine, and the times at which its tokens come.

Owns the prompts, drawn from a seed; requests are sent and read by the client of `bench`. It does not know
which engine answers: any that speaks OpenAI's chat completions with `ignore_eos` will do.

Invariant: engines get the same prompts in the same order; none is sent twice to one engine, so that
only a session finds its own past in a prefix cache.
"""

from __future__ import annotations

import asyncio
import random
import statistics
from dataclasses import dataclass
from typing import Any

from tokenspeed_tools.bench.ask import Ask, Place
from tokenspeed_tools.bench.asking import Asking
from tokenspeed_tools.bench.client import Client
from tokenspeed_tools.bench.http import now
from tokenspeed_tools.bench.lag import LoopWatch
from tokenspeed_tools.bench.plan import Message

NEW_TOKENS = 128
PROMPT_WORDS = 28  # 58 tokens or so with the demo model's chat template and system message
REQUESTS = {1: 5, 4: 12, 16: 32}
LIMIT_S = 600.0

TURNS = 6
FIRST_TURN_WORDS = 560
TURN_WORDS = 200
TURN_TOKENS = 80
SESSION = 1 << 20  # of the conversation; the requests of a crowd are sessions of their own, from 0 on

TEXT = (
    "the parser reads a line of each file and keeps every token with its place so that an error can name it "
    "while another part counts words lines and pages before it asks for more room on the way out of here"
)
WORDS = TEXT.split()


@dataclass(frozen=True)
class Answer:
    """One reply: the loop's seconds when it was asked for and when its pieces came, and its tokens."""

    begin_s: float
    times_s: list[float]
    tokens: int
    prompt_tokens: int
    text: str

    @property
    def ttft_ms(self) -> float:
        """Milliseconds to the first piece."""
        return (self.times_s[0] - self.begin_s) * 1e3

    @property
    def tpot_ms(self) -> float:
        """Milliseconds a token behind the first one."""
        return (self.times_s[-1] - self.times_s[0]) * 1e3 / max(1, self.tokens - 1)


def words(seed: int, count: int) -> str:
    """Return `count` words."""
    return " ".join(random.Random(seed).choices(WORDS, k=count))


async def ask(client: Client, model: str, messages: list[Message], new_tokens: int, session: int) -> Answer:
    """Send one request of `session` and read its stream; raise `RuntimeError` if that failed."""
    begin_s = now()
    request = Ask(Place(0, session, 0, False, begin_s), 0.0, LoopWatch())
    error = await request.run(client, Asking("chat", model), messages, new_tokens, LIMIT_S)
    if error is not None:
        raise RuntimeError(error)
    line = request.record(None, None, None)
    times_s = [at_s for at_s, _ in line.chunks]
    return Answer(begin_s, times_s, line.output_tokens, line.prompt_tokens or 0, request.reply.text)


async def crowd(
    client: Client, model: str, concurrency: int, requests: int = 0, new_tokens: int = 0
) -> dict[str, float]:
    """Keep `concurrency` requests open until all are answered; return the figures.

    Their number is that of `REQUESTS` and their tokens `NEW_TOKENS` unless others are given.
    """
    waiting = iter(range(requests or REQUESTS[concurrency]))

    async def one_after_the_other() -> list[Answer]:
        own = []
        for number in waiting:
            prompt = words(1000 * concurrency + number, PROMPT_WORDS)
            messages = [{"role": "user", "content": prompt}]
            own.append(await ask(client, model, messages, new_tokens or NEW_TOKENS, number))
        return own

    begin_s = now()
    answers = [
        answer for own in await asyncio.gather(*(one_after_the_other() for _ in range(concurrency))) for answer in own
    ]
    return summary(answers, now() - begin_s)


def summary(answers: list[Answer], took_s: float) -> dict[str, float]:
    """Return the figures of answers that took `took_s` seconds together."""
    return {
        "prompt_tokens": statistics.median(answer.prompt_tokens for answer in answers),
        "new_tokens": statistics.median(answer.tokens for answer in answers),
        "ttft_ms_p50": round(statistics.median(answer.ttft_ms for answer in answers), 1),
        "tpot_ms_p50": round(statistics.median(answer.tpot_ms for answer in answers), 2),
        "tokens_per_s": round(sum(answer.tokens for answer in answers) / took_s, 1),
    }


async def session(client: Client, model: str) -> dict[str, Any]:
    """Hold a conversation of `TURNS` turns; return the milliseconds to the first token of each."""
    messages: list[Message] = []
    answers = []
    for turn in range(TURNS):
        text = words(7 + turn, TURN_WORDS if turn else FIRST_TURN_WORDS)
        messages.append({"role": "user", "content": text})
        answers.append(await ask(client, model, messages, TURN_TOKENS, SESSION))
        messages.append({"role": "assistant", "content": answers[-1].text})
    return {
        "prompt_tokens": [answer.prompt_tokens for answer in answers],
        "ttft_ms": [round(answer.ttft_ms) for answer in answers],
        "ttft_ms_p50": round(statistics.median(answer.ttft_ms for answer in answers[1:])),
    }
