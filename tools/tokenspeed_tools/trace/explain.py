"""`trace explain`: the life of one request in words, with every pause and its cause.

Owns the command and the page that it prints. It does not know how points become a life (`life`) or
sentences (`story`). A running engine needs no preparation: its buffers hold the recent past.

Invariant: what is missing is said.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from tokenspeed.client import Client
from tokenspeed.errors import UserError
from tokenspeed.points import Finish
from tokenspeed.server.frames import socket_path
from tokenspeed_tools.trace.engines import add_engine, find_engine
from tokenspeed_tools.trace.life import Life
from tokenspeed_tools.trace.past import Past
from tokenspeed_tools.trace.recording import Recording, load, record
from tokenspeed_tools.trace.story import Entry, Story
from tokenspeed_tools.trace.words import MS, S, counted, duration, listed

ENDINGS = {
    Finish.STOP: "ended by itself",
    Finish.LENGTH: "ended at its token limit",
    Finish.ABORT: "was cancelled",
    Finish.ERROR: "failed",
}
WAITS_TOLD = 3
WAIT_NS_MIN = 1 * MS
ROW = "{:>8}  {:<16} {:>8} {:>8} {:>8} {:>10} {:>10}  {}"


def main(argv: list[str]) -> int:
    """Tell a request's life, or list the requests that are known."""
    options = _parser().parse_args(argv)
    recording = past_of(options.file, options.engine)
    past = Past(recording.points, recording.end_ns, recording.topology.edges)
    if options.all:
        print("\n".join(table(past)))
        return 0
    for number in _numbers(options.request, recording, options.socket):
        print("\n".join([*page(past, number, recording), ""]))
    return 0


def past_of(file: Path | None, engine: str | None) -> Recording:
    """Return the recording in `file`, else what the buffers of a running engine hold now."""
    return load(file) if file is not None else record(find_engine(engine), 0.0, past=True)


def add_source(parser: argparse.ArgumentParser) -> None:
    """Give `parser` the options that say where the points come from."""
    add_engine(parser)
    parser.add_argument("--file", type=Path, metavar="POINTS", help="a recording (`trace record --format points`)")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tokenspeed trace explain", description="Tell the life of one request.")
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument(
        "--request", metavar="ID", help="the engine's number, an x-request-id, or the id in an answer's body"
    )
    which.add_argument("--all", action="store_true", help="list the requests of the recent past")
    add_source(parser)
    parser.add_argument("--socket", type=Path, help="the server's Unix socket, if `serve --socket` moved it")
    return parser


def _numbers(ident: str, recording: Recording, socket: Path | None) -> list[int]:
    """Return the engine's numbers of the request `ident`; only a running server knows those of other ids."""
    if ident.isdigit():
        return [int(ident)]
    place = socket or socket_path(recording.topology.pid)
    if not place.exists():
        raise UserError(f"{ident!r} is no number, and no server at {place} can tell which it has; see --all.")
    return Client(place, timeout_s=10.0).requests(ident)


def table(past: Past) -> Iterator[str]:
    """Yield a line for each request that is known."""
    yield ROW.format("request", "state", "prompt", "cached", "tokens", "TTFT", "end to end", "now")
    for number in past.requests:
        if (life := past.life(number)) is not None:
            ttft = "" if life.ttft_ns is None else duration(life.ttft_ns)
            now = str(life.parts[-1].doing) if life.is_open and life.parts else ""
            counts = (life.prompt_tokens, life.cached_tokens, life.output_tokens)
            yield ROW.format(number, _state(life), *counts, ttft, duration(life.e2e_ns), now).rstrip()


def page(past: Past, number: int, recording: Recording) -> Iterator[str]:
    """Yield the lines that tell the life of the request `number`. Raises `UserError` if nothing of it is left."""
    life = past.life(number)
    if life is None:
        raise UserError(_unknown(past, number))
    story = Story(past, life)
    yield from _head(life, story)
    yield from _missing(past, life, recording)
    yield ""
    yield f"  {'after':>9}  {'for':>8}"
    for entry in story.entries():
        yield from _lines(entry, life)
    yield f"  {duration(life.e2e_ns):>9}  {'':>8}  {'now' if life.is_open else 'end'}"


def _head(life: Life, story: Story) -> Iterator[str]:
    verb = f"is open since {duration(life.e2e_ns)}" if life.is_open else f"{_ended(life)} after {duration(life.e2e_ns)}"
    yield f"request {life.request} {verb}"
    cached = f", {life.cached_tokens:,} of them cached" if life.cached_tokens else ""
    prompt = f"{counted(life.prompt_tokens, 'prompt token')}{cached}"
    yield f"  {prompt}; {counted(life.output_tokens, 'token')} out{_speed(life)}"
    waits = [(ns, cause) for ns, cause in story.waits() if ns >= WAIT_NS_MIN][:WAITS_TOLD]
    if waits:
        yield "  waited longest:"
    yield from (f"    {duration(ns):>8}  {cause}" for ns, cause in waits)


def _speed(life: Life) -> str:
    if life.ttft_ns is None or life.first_ns is None:
        return ""
    text = f"; the first after {duration(life.ttft_ns)}"
    if life.sent_whole:
        text += ", all sent at the end"
    more, rest_ns = life.output_tokens - 1, life.end_ns - life.first_ns
    return f"{text}, then {more / (rest_ns / S):,.1f} tokens/s" if more > 0 and rest_ns > 0 else text


def _lines(entry: Entry, life: Life) -> Iterator[str]:
    yield f"  {duration(entry.begin_ns - life.begin_ns):>9}  {duration(entry.ns):>8}  {entry.text}"
    yield from (f"{'':24}{note}" for note in entry.notes)


def _ended(life: Life) -> str:
    return "was let go of by the scheduler" if life.finish is None else ENDINGS[life.finish]


def _state(life: Life) -> str:
    return "open" if life.is_open else "ended" if life.finish is None else life.finish.name.lower()


def _missing(past: Past, life: Life, recording: Recording) -> Iterator[str]:
    if not life.is_whole:
        yield "  Its beginning is no longer in the buffers; times count from the oldest point that is left."
    actors = [actor for actor in past.missing(life) if actor != "engine" or not life.is_whole]
    if actors:
        yield f"  Older points of {listed(sorted(actors), 5)} are overwritten: this life is told without them."
    if recording.points_lost:
        yield f"  {counted(recording.points_lost, 'point')} went unread while this was recorded; parts may be missing."


def _unknown(past: Past, number: int) -> str:
    known = past.requests
    if not known:
        return f"Nothing is known of request {number}: there is no point of any request."
    oldest = min(past.begins.values(), default=past.now_ns)
    return (
        f"Nothing is known of request {number}: the points go back {duration(past.now_ns - oldest)} and tell of "
        f"{counted(len(known), 'request')} from {known[0]} to {known[-1]}; see --all, or record while it runs."
    )
