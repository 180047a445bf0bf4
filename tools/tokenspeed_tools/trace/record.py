"""`trace record`: what an engine does for a while, written to a file.

Owns options, progress and the choice of the form. A file for Perfetto is drawn when the recording is over,
so that nothing but copying goes on beside the engine; a file of points is for the other tools.

Invariant: what was recorded is written, also after Ctrl-C.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from msgspec.structs import replace

from tokenspeed.cli.parser import Parser
from tokenspeed.cli.screen import Screen, amount
from tokenspeed.errors import UserError
from tokenspeed.observe.attach import attach
from tokenspeed.points import Kind
from tokenspeed_tools.trace.drawing import draw
from tokenspeed_tools.trace.engines import add_engine, find_engine, told_choice
from tokenspeed_tools.trace.kernels import KernelCall
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
    add(
        "--kernels",
        action="store_true",
        help="with the GPU's kernels, for at most 60 s; that slows the engine",
    )
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
    recording = _recorded(path, options, screen)
    screen.progress(f"write {options.output}")
    _write(recording, options.output, options.format)
    screen.say(_told(recording, options.output))
    if options.kernels and not recording.kernels:
        screen.say("no kernels: the engine had not told them when the recording ended")
    if options.format == "perfetto":
        screen.say("open it at https://ui.perfetto.dev (it stays in your browser)")
    return 0


def _recorded(path: Path, options: argparse.Namespace, screen: Screen) -> Recording:
    call = _kernels(path, options.seconds) if options.kernels else None

    def on_poll(passed_s: float, points: int) -> None:
        if call is not None:
            call.check()
        late = ", waits for the kernels" if call is not None and passed_s > options.seconds else ""
        of = f"{options.seconds:g} s{late}"
        screen.progress(f"record {min(passed_s, options.seconds):.1f}/{of}, {points:,} points")

    goes_on = call.is_alive if call is not None else lambda: False
    recording = record(path, options.seconds, past=options.past, on_poll=on_poll, goes_on=goes_on)
    return recording if call is None else replace(recording, kernels=call.take())


def _kernels(path: Path, seconds: float) -> KernelCall:
    """Ask the engine behind `path` for its kernels; it begins at once and answers in `seconds`."""
    attachment = attach(path)
    attachment.close()
    call = KernelCall(attachment.topology.pid, seconds)
    call.start()
    return call


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
    if restarted := _restarted(recording):
        text += f"; restarted meanwhile: {', '.join(restarted)}"
    if recording.points_lost:
        lost = ", ".join(f"{count:,} of {actor}" for actor, count in recording.lost.items() if count)
        text += f"; lost because they were read too late: {lost}"
    return text


def _restarted(recording: Recording) -> list[str]:
    """Return the actors that began a new life."""
    begun = [
        actor
        for actor, points in recording.points.items()
        if any(point.kind is Kind.STARTED and point.time_ns >= recording.begin_ns for point in points)
    ]
    return sorted(begun)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= SECONDS_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0, at most {SECONDS_MAX:g}")
    return value
