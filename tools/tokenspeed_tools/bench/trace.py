"""Recorded sessions, to be played again.

Owns two forms of file. The first: JSON lines, one for each turn, with `session`, `turn`, either
`messages` (what this turn adds) or `input_tokens` (how many tokens it adds; random text is made of
them, the first `shared_tokens` the same in all sessions), `output_tokens`, `think_s` (from the end of
the reply before) and, with the first turn, `at_s` (when the session begins). The second: the raw file
of a run of ours, of which lengths and times are taken.

Invariant: sessions begin when the recording says; a turn waits for the real reply before it, however
long that takes now.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import msgspec

from tokenspeed_tools.bench import raw
from tokenspeed_tools.bench.plan import Message, Plan, PlanError, Session, Turn, user
from tokenspeed_tools.bench.serve import lines
from tokenspeed_tools.bench.words import Calibration, draw


class TraceLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One turn of a recording; times in seconds."""

    session: str | int
    turn: int
    messages: list[Message] | None = None
    input_tokens: int | None = None
    shared_tokens: int = 0
    output_tokens: int | None = None
    think_s: float = 0.0
    at_s: float | None = None


class Kind(msgspec.Struct):
    """What tells a raw file from a trace."""

    kind: str = ""


def plan(path: Path, options: argparse.Namespace, calibration: Calibration) -> Plan:
    """Return the sessions of `path`; without starts of their own, `--sessions` at once. Raise `PlanError`."""
    recorded = sorted(read(path), key=lambda line: (str(line.session), line.turn))
    groups = [list(group) for _, group in groupby(recorded, key=lambda line: line.session)]
    if any(group[0].at_s is not None for group in groups):
        groups.sort(key=lambda group: group[0].at_s or 0.0)
    sessions = [_session(index, group, options, calibration) for index, group in enumerate(groups)]
    timed = any(session.at_s is not None for session in sessions)
    return Plan(sessions, None if timed else options.sessions)


def read(path: Path) -> list[TraceLine]:
    """Return the lines of a recording of either form; raise `PlanError`."""
    texts = lines(path)
    if not texts:
        raise PlanError(f"{path} is empty: a trace has a line for each turn")
    try:
        is_raw = msgspec.json.decode(texts[0], type=Kind).kind == "run"
        return list(from_raw(path)) if is_raw else [_decode(path, number, text) for number, text in enumerate(texts, 1)]
    except (msgspec.DecodeError, raw.RawFileError) as error:
        raise PlanError(f"{path} is no trace: {error}") from None


def from_raw(path: Path) -> Iterator[TraceLine]:
    """Yield the turns of the one run in a raw file, as far as each session went well."""
    runs = raw.read(path)
    if len(runs) != 1:
        raise PlanError(f"{path} holds {len(runs)} runs; a trace is made of one")
    good = [line for line in runs[0].requests if not line.warmup and line.error is None]
    shared = sum(
        tokens
        for name in ("system_tokens", "repository_tokens", "prefix_tokens")
        if isinstance(tokens := runs[0].run.workload.get(name), int)
    )
    start_s = min((line.scheduled_s for line in good), default=0.0)
    before: raw.Request | None = None
    for line in sorted(good, key=lambda line: (line.session, line.turn)):
        if line.prompt_tokens is None:
            raise PlanError(f"{path}: the server of this run did not count its prompts; there is nothing to repeat")
        if before is None or before.session != line.session:
            before = None
        yield _turn_of(line, before, start_s, shared)
        before = line


def _turn_of(line: raw.Request, before: raw.Request | None, start_s: float, shared: int) -> TraceLine:
    tokens = line.prompt_tokens or 0
    if before is None:
        at_s = round(line.scheduled_s - start_s, 6)
        return TraceLine(line.session, line.turn, None, tokens, min(shared, tokens - 1), line.output_tokens, at_s=at_s)
    new = max(1, tokens - (before.prompt_tokens or 0) - before.output_tokens)
    think_s = max(0.0, round(line.scheduled_s - before.end_s, 6))
    return TraceLine(line.session, line.turn, None, new, 0, line.output_tokens, think_s)


def _decode(path: Path, number: int, text: bytes) -> TraceLine:
    try:
        line = msgspec.json.decode(text, type=TraceLine)
    except msgspec.DecodeError as error:
        raise PlanError(f"{path}:{number}: {error}") from None
    if (line.messages is None) == (line.input_tokens is None):
        raise PlanError(f"{path}:{number}: has messages and input_tokens, or none of them: one is needed")
    return line


def _session(index: int, group: list[TraceLine], options: argparse.Namespace, calibration: Calibration) -> Session:
    named = f"{options.seed} trace"
    turns = []
    for number, line in enumerate(group):
        rng = random.Random(f"{named} {index} {number}")
        messages = line.messages or [user(_text(line, rng, named, calibration, first=number == 0))]
        turns.append(Turn(messages, line.input_tokens, line.output_tokens, line.think_s if number else 0.0))
    return Session(index, turns, group[0].at_s)


def _text(line: TraceLine, rng: random.Random, named: str, calibration: Calibration, *, first: bool) -> str:
    """Return text of the line's tokens; what is shared is the beginning of one long text."""
    around = calibration.first if first else calibration.turn
    own = max(1, (line.input_tokens or 0) - line.shared_tokens - around)
    parts = [draw(rng, calibration.words(own))]
    if line.shared_tokens:
        parts.insert(0, draw(random.Random(f"{named} shared"), calibration.words(line.shared_tokens)))
    return " ".join(parts)
