"""`bench agentic`: sessions of a coding agent, or a recorded trace of such.

Owns the options of this load. A session begins with a system prompt that all share, the context of
a repository that all share, and a task of its own; then each turn adds what a tool printed, after
the time that the tool took, to a history that has the server's real replies in it.

Invariant: what is said to be shared is the same text in all sessions, and nothing else is.
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path
from typing import Any

from tokenspeed.cli.parser import Parser, whole
from tokenspeed_tools.bench import trace
from tokenspeed_tools.bench.plan import Message, Plan, PlanError, Session, Turn, user
from tokenspeed_tools.bench.spans import Span, Wait, span, wait
from tokenspeed_tools.bench.words import Calibration, draw

MOST = 2**31 - 1


def add_pace(reader: Parser) -> None:
    """Add how many sessions there are at once, and what comes instead of random ones."""
    add = reader.add_argument_group("pace").add_argument
    add("--sessions", type=whole(1, 1 << 16), metavar="N", default=4, help="sessions open at once (%(default)s)")
    add("--trace", type=Path, metavar="FILE", help="replay sessions from JSON lines, or from a raw file of ours")


def add_options(reader: Parser) -> None:
    """Add what a session is like."""
    reader.set_defaults(trace=None)
    add = reader.add_argument_group("load").add_argument
    add("--num-sessions", type=whole(1, MOST), metavar="N", help="sessions in all (as many as at once)")
    add("--turns", type=span, metavar="N", default=Span(6, 6), help="turns of a session (%(default)s)")
    add(
        "--think-time",
        type=wait,
        metavar="S",
        default=Wait("uniform", 0.0, 0.0),
        help="seconds before each turn but the first: 2, 1-5, exp:3 or lognormal:3,0.8 (%(default)s)",
    )
    add = reader.add_argument_group("lengths in tokens, N or LOW-HIGH").add_argument
    add("--system-tokens", type=whole(0, MOST), metavar="N", default=512, help="system prompt of all (%(default)s)")
    add("--repository-tokens", type=whole(0, MOST), metavar="N", default=1024, help="context of all (%(default)s)")
    add("--first-turn-tokens", type=span, metavar="N", default=Span(512, 512), help="task of each (%(default)s)")
    add("--turn-tokens", type=span, metavar="N", default=Span(128, 384), help="growth per turn (%(default)s)")
    add("--output-tokens", type=span, metavar="N", default=Span(64, 64), help="of a reply (%(default)s)")


def plan(options: argparse.Namespace, calibration: Calibration) -> Plan:
    """Return the plan; raise `PlanError` where the options do not fit together."""
    if options.trace:
        return trace.plan(options.trace, options, calibration)
    number = defaults(options)["num_sessions"]
    if options.first_turn_tokens.low <= calibration.first:
        raise PlanError(
            f"--first-turn-tokens {options.first_turn_tokens.low} is too few: the chat template alone takes "
            f"{calibration.first} tokens; the least is {calibration.first + 1}"
        )
    if options.turn_tokens.low <= calibration.turn:
        raise PlanError(
            f"--turn-tokens {options.turn_tokens.low} is too few: the chat template alone takes "
            f"{calibration.turn} tokens a turn; the least is {calibration.turn + 1}"
        )
    shared = Shared(options, calibration)
    return Plan([_session(index, options, shared, calibration) for index in range(number)], options.sessions)


class Shared:
    """What all sessions have: the system message and the beginning of the first user message."""

    def __init__(self, options: argparse.Namespace, calibration: Calibration) -> None:
        rng = random.Random(f"{options.seed} {options.sessions} shared")
        self.head: list[Message] = []
        if options.system_tokens:
            text = draw(rng, calibration.words(options.system_tokens))
            self.head.append({"role": "system", "content": text})
        self.repository = [draw(rng, calibration.words(options.repository_tokens))] if options.repository_tokens else []
        self.tokens = options.system_tokens + options.repository_tokens


def _session(index: int, options: argparse.Namespace, shared: Shared, calibration: Calibration) -> Session:
    rng = random.Random(f"{options.seed} {options.sessions} session {index}")
    first = options.first_turn_tokens.draw(rng)
    task = draw(rng, calibration.words(first - calibration.first))
    messages = [*shared.head, user(" ".join([*shared.repository, task]))]
    turns = [Turn(messages, shared.tokens + first, options.output_tokens.draw(rng))]
    for _ in range(1, options.turns.draw(rng)):
        tokens = options.turn_tokens.draw(rng)
        text = draw(rng, calibration.words(tokens - calibration.turn))
        turns.append(Turn([user(text)], tokens, options.output_tokens.draw(rng), options.think_time.draw(rng)))
    return Session(index, turns)


def defaults(options: argparse.Namespace) -> dict[str, Any]:
    """Return what stands for an option that was not given."""
    return {} if options.trace else {"num_sessions": options.num_sessions or options.sessions}
