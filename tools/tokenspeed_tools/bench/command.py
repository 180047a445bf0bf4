"""`tokenspeed bench`: the commands and their options.

Owns what is asked for and where the answers go: lines into a file that did not exist, a table on
standard output, progress on standard error.

Invariant: the exit code is 0 only if every request was sent and answered well: 1 for failures, 2 for
a command that cannot be run as it stands, 130 after Ctrl-C.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from copy import copy
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import cast

import msgspec
import uvloop

from tokenspeed.cli.parser import Parser, fraction, json_object, nearest, seconds, whole
from tokenspeed.cli.screen import Screen
from tokenspeed_tools.bench import agentic, latency, serve, table
from tokenspeed_tools.bench.client import BadUrlError, Client
from tokenspeed_tools.bench.plan import PlanError
from tokenspeed_tools.bench.raw import Mode, Run, Summary, Writer
from tokenspeed_tools.bench.run import Bench
from tokenspeed_tools.bench.target import TargetError

LOADS: dict[str, ModuleType] = {"serve": serve, "agentic": agentic, "latency": latency}
COMMANDS = {
    "serve": "prompts that have nothing to do with one another, at a rate or so many at once",
    "agentic": "sessions of a coding agent that share a system prompt and a repository, or a recorded trace",
    "latency": "one request at a time",
    "sweep": "serve or agentic at one concurrency after the other, into one file",
    "report": "one HTML page that compares the runs of raw files",
}
FOLDER = Path("bench-results")
FAILED, USAGE, INTERRUPTED = 1, 2, 130
DEFAULT_URL = "http://127.0.0.1:8000"


def main(argv: list[str]) -> int:
    """Run the command and return its exit code."""
    if not argv or argv[0] in ("-h", "--help", "help"):
        print(_help())
        return 0 if argv else USAGE
    name, *rest = argv
    if name == "report":
        return _report(rest)
    if name == "sweep":
        return _sweep(argv)
    if name in LOADS:
        options = _parser(f"tokenspeed bench {name}", COMMANDS[name], name).read(rest)
        return _run(options, argv, name, [options])
    print(f"tokenspeed bench: unknown command {name!r}{nearest(name, COMMANDS)}; see --help", file=sys.stderr)
    return USAGE


def _report(argv: list[str]) -> int:
    from tokenspeed_tools.report import main as report

    return report(argv)


def _sweep(argv: list[str]) -> int:
    kinds = ("serve", "agentic")
    if len(argv) < 2 or argv[1] not in (*kinds, "-h", "--help"):
        print("tokenspeed bench sweep: say which load: sweep serve or sweep agentic", file=sys.stderr)
        return USAGE
    load = argv[1] if argv[1] in kinds else "serve"
    reader = _parser(f"tokenspeed bench sweep {load}", COMMANDS["sweep"], load, sweep=True)
    options = reader.read(argv[1:] if load != argv[1] else argv[2:])
    points = []
    for at_once in options.concurrencies:
        point = copy(options)
        setattr(point, "sessions" if load == "agentic" else "concurrency", at_once)
        total = "num_sessions" if load == "agentic" else "num_prompts"
        if (asked := getattr(options, total)) is not None:
            setattr(point, total, max(asked, at_once))
        points.append(point)
    return _run(options, argv, load, points)


def _parser(prog: str, description: str, load: str, *, sweep: bool = False) -> Parser:
    reader = Parser(prog, f"Measure a server that speaks OpenAI's API: {description}.")
    add = reader.add_argument_group("server").add_argument
    add("--base-url", metavar="URL", default=DEFAULT_URL, help="where it is, with or without /v1 (%(default)s)")
    add("--model", metavar="NAME", help="the name to ask for (the first of /v1/models)")
    add("--api", choices=("chat", "completions"), default="chat", help="which endpoint (%(default)s)")
    add("--api-key-file", type=Path, metavar="FILE", help="file with the key; a key is never recorded")
    add("--api-key-env", metavar="NAME", help="environment variable with the key")
    add(
        "--gpus",
        type=whole(0, 1 << 16),
        metavar="N",
        default=0,
        help="GPUs of the server, for figures per GPU (0: CPU)",
    )
    add(
        "--note",
        type=_note,
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="a setting of the server, for the record",
    )
    if sweep:
        _add_points(reader)
    else:
        LOADS[load].add_pace(reader)
    LOADS[load].add_options(reader)
    _add_request_options(reader)
    return reader


def _add_points(reader: Parser) -> None:
    add = reader.add_argument_group("pace").add_argument
    at_once = "requests, or sessions, open at once: the points of the sweep (1,2,4,8)"
    add("--concurrency", dest="concurrencies", type=_numbers, metavar="N,...", default=(1, 2, 4, 8), help=at_once)


def _add_request_options(reader: Parser) -> None:
    add = reader.add_argument_group("requests").add_argument
    add("--temperature", type=fraction(0.0, 100.0), metavar="T", default=0.0, help="0 is greedy (%(default)s)")
    add("--no-ignore-eos", action="store_true", help="let replies end by themselves")
    add(
        "--usage",
        choices=("end", "each", "none"),
        default="end",
        help="ask for the count of tokens in the end, with each piece, or not (%(default)s)",
    )
    add("--extra-body", type=json_object, metavar="JSON", help="fields for the body of every request")
    add(
        "--warmup",
        type=whole(0, 1 << 20),
        metavar="N",
        default=4,
        help="requests before, which do not count (%(default)s)",
    )
    add(
        "--timeout", type=seconds, metavar="S", default=1800.0, help="longest request in seconds; 0: none (%(default)s)"
    )
    add("--seed", type=int, metavar="N", default=0, help="of prompts, lengths and times (%(default)s)")
    add = reader.add_argument_group("results").add_argument
    add("--output", type=Path, metavar="FILE", help=f"raw lines; a new file (in {FOLDER}/)")
    add("--label", metavar="TEXT", help="name of the runs in comparisons (the server's)")
    add("--json", action="store_true", help="one line of JSON a run on standard output, the table on standard error")


def _run(options: argparse.Namespace, argv: list[str], load: str, points: list[argparse.Namespace]) -> int:
    path = options.output or FOLDER / f"{argv[0]}-{datetime.now(UTC):%Y%m%d-%H%M%S}.jsonl"
    for point in points:
        point.argv = argv
        for name, value in LOADS[load].defaults(point).items():
            setattr(point, name, value)
    try:
        client = Client(options.base_url, _key(options))
        path.parent.mkdir(parents=True, exist_ok=True)
        writer = Writer(path)
    except FileExistsError:
        print(f"tokenspeed bench: {path} exists; results are never overwritten: give another --output", file=sys.stderr)
        return USAGE
    except (BadUrlError, PlanError, OSError) as error:
        print(f"tokenspeed bench: {error}", file=sys.stderr)
        return USAGE
    screen = Screen(sys.stderr)
    bench = Bench(client, cast("Mode", load), LOADS[load].plan, writer, screen)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            done = runner.run(_points(bench, points, client))
    except (PlanError, TargetError) as error:
        screen.complain(f"tokenspeed bench: {error}")
        return USAGE if isinstance(error, PlanError) else FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    finally:
        writer.close()
        if not path.stat().st_size:
            path.unlink()
    screen.say("stopped: the file has what was there" if bench.interrupted else "done")
    _tell(options, argv, done, path)
    return _exit_code(bench, [summary for _, summary in done])


async def _points(bench: Bench, points: list[argparse.Namespace], client: Client) -> list[tuple[Run, Summary]]:
    try:
        await bench.prepare(points[0])
        return [await bench.measure(point) for point in points if not bench.interrupted]
    finally:
        client.close()


def _tell(options: argparse.Namespace, argv: list[str], done: list[tuple[Run, Summary]], path: Path) -> None:
    text = table.sweep(done) if argv[0] == "sweep" else "\n".join(table.figures(*pair) for pair in done)
    print(f"{text}\n\nEvery request is in {path}", file=sys.stderr if options.json else sys.stdout)
    if options.json:
        for run, summary in done:
            head = {"file": str(path), "label": run.label, "mode": run.mode, "concurrency": table.concurrency(run)}
            print(msgspec.json.encode(head | msgspec.to_builtins(summary)).decode())


def _exit_code(bench: Bench, summaries: list[Summary]) -> int:
    if bench.interrupted:
        return INTERRUPTED
    return FAILED if any(summary.requests.failed for summary in summaries) else 0


def _key(options: argparse.Namespace) -> str | None:
    """Return the key; raise `PlanError` where it cannot be read."""
    if options.api_key_file is not None:
        key = options.api_key_file.read_text().strip()
    elif options.api_key_env is not None:
        key = os.environ.get(options.api_key_env, "").strip()
    else:
        return None
    if not key or not key.isprintable():
        raise PlanError(f"{options.api_key_file or options.api_key_env} holds no key")
    return str(key)


def _note(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(whole(1, 1 << 16)(part) for part in text.split(","))


def _help() -> str:
    lines = [f"  {name:<9} {summary}" for name, summary in COMMANDS.items()]
    return "\n".join(
        [
            "usage: tokenspeed bench COMMAND [OPTION ...]",
            "",
            "Puts load on any server that speaks OpenAI's API and says what came of it.",
            "",
            *lines,
            "",
            "`tokenspeed bench COMMAND --help` tells of a command.",
        ]
    )
