r"""The command line of `make bench`: which parts run, and what is done with their figures.

    make bench                                     everything, in a few minutes
    make bench BENCH_ARGS="--only ring,plan"       these parts
    make bench BENCH_ARGS=--list                   what there is

Each part that ran is printed as a table beside the last comparable line of `benchmarks/suite.jsonl`
and written there. The exit code is 1 if a part failed, or if a figure is worse by more than
`--fail-above` percent and beyond the noise.
"""

from __future__ import annotations

import argparse
import datetime
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tokenspeed.cli.screen import Screen
from tokenspeed_tools.bench_suite import compare
from tokenspeed_tools.bench_suite.book import Book, commit_of, versions
from tokenspeed_tools.bench_suite.line import SCHEMA, Line
from tokenspeed_tools.bench_suite.part import Part
from tokenspeed_tools.bench_suite.registry import chosen
from tokenspeed_tools.bench_suite.runner import measured_alone
from tokenspeed_tools.bench_suite.table import table
from tokenspeed_tools.prove.ledger import machine, machine_kind


def parser() -> argparse.ArgumentParser:
    """Return the parser of the options."""
    reader = argparse.ArgumentParser("bench", description="Measure what the engine costs on this CPU, part by part.")
    add = reader.add_argument
    add("--only", type=_parts, default=chosen(""), metavar="PART,...", help="these parts")
    add("--list", action="store_true", help="say what there is, and run nothing")
    add("--rounds", type=_count, metavar="N", help="rounds of each part (default: its own number)")
    add("--against", default="", metavar="COMMIT", help="compare with the last line of this commit")
    add("--fail-above", type=float, metavar="PERCENT", help="exit with 1 if a figure is worse by more, beyond noise")
    add("--path", type=Path, default=Path("benchmarks/suite.jsonl"), help="the file of results (%(default)s)")
    add("--dry-run", action="store_true", help="measure and compare, and write no line")
    return reader


def _parts(names: str) -> list[Part]:
    try:
        return chosen(names)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _count(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of rounds: 1 or more are needed")
    return int(text)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, compare and write; return the exit code."""
    options = parser().parse_args(argv)
    if options.list:
        print("\n".join(f"{part.name:10} about {part.about_s:3} s  {part.shows}" for part in options.only))
        return 0
    book = Book(options.path)
    known = _known()
    failed: list[str] = []
    screen = Screen(sys.stderr)
    for number, part in enumerate(options.only, 1):
        rounds = options.rounds or part.rounds
        begun = f"{part.name}, {rounds} rounds in about {part.about_s} s: {part.shows}"
        screen.progress(f"bench: {number}/{len(options.only)} {begun}")
        load = round(os.getloadavg()[0], 1)
        try:
            measured = measured_alone(part.name, rounds)
        except Exception as error:
            failed.append(f"{part.name} failed: {type(error).__name__}: {error}")
            continue
        line = Line(part=part.name, sizes=dict(part.sizes), load=load, **known, **measured._asdict())
        then = book.last(line, options.against)
        screen.say()
        print(table(line, then), flush=True)
        failed += _too_bad(line, then, options.fail_above)
        if not options.dry_run:
            book.add(line)
    for text in failed:
        screen.complain(f"bench: {text}")
    return 1 if failed else 0


def _known() -> dict[str, Any]:
    """Return the fields that all lines of this run share."""
    commit, dirty = commit_of(Path.cwd())
    return {
        "schema": SCHEMA,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "commit": commit,
        "dirty": dirty,
        "machine": machine(),
        "kind": machine_kind(),
        "versions": versions(),
    }


def _too_bad(line: Line, then: Line | None, limit_percent: float | None) -> list[str]:
    """Return what is worse by more than the limit, in words."""
    if then is None or limit_percent is None:
        return []
    found = []
    for name in line.figures:
        change = compare.change(line, then, name)
        if change is not None and change.verdict == compare.WORSE and change.size_percent > limit_percent:
            found.append(f"{line.part}: {name} changed by {change.percent:+.1f}%, more than {limit_percent:g}%")
    return found
