"""`bench serve`: prompts that have nothing to do with one another, at a rate or so many at once.

Owns the options of this load and how a plan is made of them: random text, or the prompts of a file.

Invariant: a random prompt is nobody else's but for the first `--prefix-tokens`, which are the same
in all of them.
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path
from typing import Any

import msgspec

from tokenspeed.cli.parser import Parser, fraction, whole
from tokenspeed_tools.bench.plan import Message, Plan, PlanError, Session, Turn, arrivals, user
from tokenspeed_tools.bench.spans import Span, span
from tokenspeed_tools.bench.words import Calibration, draw

MOST = 2**31 - 1
AT_RATE = 64


class Prompt(msgspec.Struct):
    """A line of `--prompts`."""

    messages: list[Message] | None = None
    prompt: str | None = None
    output_tokens: int | None = None


def add_pace(reader: Parser) -> None:
    """Add when requests are sent."""
    add = reader.add_argument_group("pace").add_argument
    add("--concurrency", type=whole(1, 1 << 16), metavar="N", default=4, help="requests open at once (%(default)s)")
    add("--request-rate", type=fraction(1e-6, 1e6), metavar="R", help="requests a second, however many are open")
    add("--arrival", choices=("poisson", "constant"), default="poisson", help="gaps of --request-rate (%(default)s)")


def add_options(reader: Parser) -> None:
    """Add what is sent."""
    reader.set_defaults(request_rate=None, arrival=None)
    add = reader.add_argument_group("load").add_argument
    add("--num-prompts", type=whole(1, MOST), metavar="N", help=f"4 x concurrency; {AT_RATE} at a rate; all of a file")
    add("--prefix-tokens", type=whole(0, MOST), metavar="N", default=0, help="of the input, the same in all (0)")
    add("--prompts", type=Path, metavar="FILE", help='JSON lines {"prompt": ...} or {"messages": [...]} instead')
    add_lengths(reader, Span(512, 512), Span(128, 128))


def add_lengths(reader: Parser, input_tokens: Span, output_tokens: Span) -> None:
    """Add the lengths of prompt and reply with their defaults."""
    add = reader.add_argument_group("lengths, N or LOW-HIGH").add_argument
    add(
        "--input-tokens",
        type=span,
        metavar="N",
        default=input_tokens,
        help="of a prompt, template included (%(default)s)",
    )
    add("--output-tokens", type=span, metavar="N", default=output_tokens, help="of a reply (%(default)s)")


def plan(options: argparse.Namespace, calibration: Calibration) -> Plan:
    """Return the plan; raise `PlanError` where the options do not fit together."""
    turns = from_file(options) if options.prompts else randoms(options, calibration, count(options))
    rng = random.Random(f"{options.seed} arrivals")
    starts: list[float | None] = [None] * len(turns)
    if options.request_rate is not None:
        starts[:] = arrivals(rng, options.request_rate, options.arrival, len(turns))
    sessions = [Session(index, [turn], at_s) for index, (turn, at_s) in enumerate(zip(turns, starts, strict=True))]
    return Plan(sessions, None if options.request_rate is not None else options.concurrency)


def count(options: argparse.Namespace) -> int:
    """Return how many prompts there are to be."""
    if options.num_prompts is not None:
        return int(options.num_prompts)
    return AT_RATE if options.request_rate is not None else int(4 * options.concurrency)


def randoms(options: argparse.Namespace, calibration: Calibration, number: int) -> list[Turn]:
    """Return `number` random prompts."""
    named = f"{options.seed} {options.concurrency}"
    prefix = options.prefix_tokens
    shared = [draw(random.Random(f"{named} prefix"), calibration.words(prefix))] if prefix else []
    return [_random(random.Random(f"{named} prompt {index}"), shared, options, calibration) for index in range(number)]


def _random(rng: random.Random, shared: list[str], options: argparse.Namespace, calibration: Calibration) -> Turn:
    tokens = options.input_tokens.draw(rng)
    own = tokens - options.prefix_tokens - calibration.first
    if own < 1:
        least = options.prefix_tokens + calibration.first + 1
        raise PlanError(
            f"--input-tokens {tokens} is too few: the prefix has {options.prefix_tokens} tokens and the chat "
            f"template {calibration.first}; the least is {least}"
        )
    text = " ".join([*shared, draw(rng, calibration.words(own))])
    return Turn([user(text)], tokens, options.output_tokens.draw(rng))


def from_file(options: argparse.Namespace) -> list[Turn]:
    """Return the prompts of `--prompts`."""
    rng = random.Random(f"{options.seed} lengths")
    turns = [_read(options, number, text, rng) for number, text in enumerate(lines(options.prompts), 1)]
    number = options.num_prompts or len(turns)
    if not turns or number > len(turns):
        raise PlanError(f"{options.prompts} has {len(turns)} prompts, and --num-prompts asks for {number}")
    return turns[:number]


def _read(options: argparse.Namespace, number: int, text: bytes, rng: random.Random) -> Turn:
    try:
        line = msgspec.json.decode(text, type=Prompt)
    except msgspec.DecodeError as error:
        raise PlanError(f"{options.prompts}:{number}: {error}") from None
    if (line.prompt is None) == (line.messages is None):
        raise PlanError(f'{options.prompts}:{number}: has "prompt" and "messages", or none of them: one is needed')
    messages = line.messages or [user(line.prompt or "")]
    return Turn(messages, None, line.output_tokens or options.output_tokens.draw(rng))


def lines(path: Path) -> list[bytes]:
    """Return the lines of a file that are not empty; raise `PlanError`."""
    try:
        return [line for line in path.read_bytes().splitlines() if line.strip()]
    except OSError as error:
        raise PlanError(f"cannot read {path}: {error.strerror}") from None


def defaults(options: argparse.Namespace) -> dict[str, Any]:
    """Return what stands for an option that was not given."""
    return {"num_prompts": count(options)} if not options.prompts else {}
