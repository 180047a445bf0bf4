"""`trace record`: what an engine does for a while, written to a file.

Owns options, progress and the choice of the form. A file for Perfetto is drawn when the recording is over,
so that nothing but copying goes on beside the engine; a file of points is for the other tools.

Invariant: what was recorded is written, also after Ctrl-C.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tokenspeed.cli.parser import Parser
from tokenspeed.cli.screen import Screen, amount
from tokenspeed.errors import UserError
from tokenspeed_tools.trace.drawing import draw
from tokenspeed_tools.trace.engines import add_engine, find_engine, told_choice
from tokenspeed_tools.trace.recording import Recording, record, save

SECONDS = 10.0
SECONDS_MAX = 3600.0


def parser() -> Parser:
    """Return the parser of the options."""
    reader = Parser("tokenspeed trace record", "Write what a running engine does for a while to a file.")
    add_engine(reader)
    add = reader.add_argument
    add("--seconds", type=_seconds, default=SECONDS, metavar="N", help="how long (default: %(default)g)")
    add("-o", "--output", type=Path, required=True, metavar="FILE", help="the file to write")
    add(
        "--format",
        choices=("perfetto", "points"),
        default="perfetto",
        help="perfetto: for ui.perfetto.dev and SQL; points: for explain and budget (default: %(default)s)",
    )
    add("--past", action="store_true", help="begin with what the engine's buffers hold already, half a minute or more")
    return reader


def main(argv: list[str]) -> int:
    """Record, write, and return the exit code."""
    options = parser().read(argv)
    screen = Screen(sys.stderr)
    if not options.output.parent.is_dir():
        raise UserError(f"{options.output.parent} is no folder: {options.output} cannot be written.")
    path = find_engine(options.engine)
    if choice := told_choice(path, options.engine):
        screen.say(choice)

    def on_poll(passed_s: float, points: int) -> None:
        screen.progress(f"record {min(passed_s, options.seconds):.1f}/{options.seconds:g} s, {points:,} points")

    recording = record(path, options.seconds, past=options.past, on_poll=on_poll)
    screen.progress(f"write {options.output}")
    _write(recording, options.output, options.format)
    screen.say(_told(recording, options.output))
    if options.format == "perfetto":
        screen.say("open it at https://ui.perfetto.dev (it stays in your browser)")
    return 0


def _write(recording: Recording, path: Path, form: str) -> None:
    try:
        if form == "points":
            save(recording, path)
            return
        with path.open("wb") as out:
            out.writelines(draw(recording).encode(recording.begin_ns, recording.begin_at_s))
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror}.") from None


def _told(recording: Recording, path: Path) -> str:
    points = sum(map(len, recording.points.values()))
    text = f"{path}: {points:,} points of {recording.seconds:.1f} s, {amount(path.stat().st_size, 'B')}"
    if not points:
        text += "; the engine did nothing meanwhile"
    if recording.points_lost:
        lost = ", ".join(f"{count:,} of {actor}" for actor, count in recording.lost.items() if count)
        text += f"; lost because they were read too late: {lost}"
    return text


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= SECONDS_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0, at most {SECONDS_MAX:g}")
    return value
