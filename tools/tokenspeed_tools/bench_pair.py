r"""The same agentic load on this engine and on a peer, so that anybody can do it again.

    python -m tokenspeed_tools.bench_pair --output benchmarks/agentic --rounds 2 \
        --peer "llama.cpp=llama-server -m {model} --alias demo --port {port} -t 2 -np 4 -c 32768" \
        --setting "KV cache" "float32" "float16"

Starts the engines in turns, one at a time, and sends each the load of `tokenspeed bench agentic`:
four sessions at once, six turns, a first turn of 1,000 tokens of which 800 are shared, 200 more a
turn, 64 tokens a reply. Each engine's every round becomes a raw file of its own. A setting in which
the engines differ is named for both of them, and stands in the files as a note, as the commands do.

Invariant: both engines get the same requests, made from the same seed.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tokenspeed.demo import find_demo
from tokenspeed_tools.bench import raw
from tokenspeed_tools.bench.command import main as bench
from tokenspeed_tools.bench_cpu.engines import OWN, started

US = "tokenspeed"
LOAD = (
    *("--sessions", "4"),
    *("--turns", "6"),
    *("--system-tokens", "300"),
    *("--repository-tokens", "500"),
    *("--first-turn-tokens", "200"),
    *("--turn-tokens", "200"),
    *("--output-tokens", "64"),
)
CONTEXT_TOKENS = 8192


class Side(NamedTuple):
    """One of the two engines, and what is to be known of it."""

    name: str
    command: str
    notes: dict[str, str]


def parser() -> argparse.ArgumentParser:
    """Return the parser of the options."""
    reader = argparse.ArgumentParser("bench-pair", description="Put the same agentic load on this engine and a peer.")
    add = reader.add_argument
    add("--peer", type=_peer, required=True, metavar="NAME=COMMAND", help="the peer; {model} and {port} are filled in")
    add(
        "--own",
        metavar="COMMAND",
        default=f"{OWN['tokenspeed']} --max-model-len {CONTEXT_TOKENS}",
        help="this engine's command (%(default)s)",
    )
    add("--model", type=Path, default=find_demo(), help="a .gguf file or a folder (default: the demo model)")
    add(
        "--setting",
        nargs=3,
        action="append",
        default=[],
        metavar=("NAME", "OURS", "THEIRS"),
        help="what differs between the engines; as often as there are such settings",
    )
    add("--rounds", type=int, default=1, help="how often the engines take turns (%(default)s)")
    add("--output", type=Path, required=True, metavar="FOLDER", help="where the raw files go: NAME-ROUND.jsonl")
    add("--log", type=Path, default=Path(tempfile.gettempdir()) / "bench-pair.log", help="what the engines print")
    add("load", nargs="*", metavar="-- OPTION", help="options of `tokenspeed bench agentic` that change the load")
    return reader


def _peer(text: str) -> tuple[str, str]:
    name, equals, command = text.partition("=")
    if not (name and equals and command):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=COMMAND")
    return name, command


def main(argv: Sequence[str]) -> int:
    """Measure both engines; return 1 if a request or an engine failed."""
    options = parser().parse_args(argv)
    if options.model is None:
        print("bench-pair: give --model: there is no demo model here.", file=sys.stderr)
        return 2
    sides = pair(options)
    failed = False
    with tempfile.TemporaryDirectory(prefix="bench-pair-") as folder:
        # Servers tell the path of their model, and the files keep what they tell: not where it lies here.
        model = Path(folder) / options.model.name
        model.symlink_to(options.model.resolve())
        for number in range(1, options.rounds + 1):
            # Who comes first in a round comes second in the next.
            for side in sides if number % 2 else reversed(sides):
                failed |= _measured(side, model, options.output / f"{side.name}-{number}.jsonl", options)
    print(table(options.output))
    return int(failed)


def pair(options: argparse.Namespace) -> tuple[Side, Side]:
    """Return both sides with the settings that differ."""
    name, command = options.peer
    ours, theirs = ({row[0]: row[which] for row in options.setting} for which in (1, 2))
    return Side(US, options.own, {**ours, "command": _shown(options.own)}), Side(
        name, command, {**theirs, "command": _shown(command)}
    )


def _shown(command: str) -> str:
    """Return `command` without the folders of this machine."""
    return " ".join(os.path.basename(word) if word.startswith("/") else word for word in command.split())


def _measured(side: Side, model: Path, path: Path, options: argparse.Namespace) -> bool:
    """Start one engine with `model` and put the load on it; return whether that failed."""
    notes = [text for name, value in side.notes.items() for text in ("--note", f"{name}={value}")]
    print(f"bench-pair: {path.stem}", file=sys.stderr, flush=True)
    try:
        with started(side.command, model, options.log) as running:
            where = ("--base-url", running.url, "--label", side.name, "--output", str(path))
            return bool(bench(["agentic", *where, *LOAD, *notes, *options.load]))
    except (RuntimeError, OSError) as error:
        print(f"bench-pair: {side.name} failed: {error}", file=sys.stderr)
        return True


def table(folder: Path) -> str:
    """Return the figures of all raw files in `folder`, and the settings that differ."""
    rows = [f"{'run':20} {'TTFT ms: turn 1':>15} {'turn 6':>8} {'ITL p50':>8} {'p99':>8} {'tokens/s':>9} {'cached':>8}"]
    notes: dict[str, list[str]] = {}
    for path in sorted(folder.glob("*.jsonl")):
        for recorded in raw.read(path):
            rows.append(f"{path.stem:20} {_figures(recorded)}")
            for name, value in recorded.run.notes.items():
                notes.setdefault(name, []).append(f"{recorded.run.label}: {value}")
    told = (f"{name}: {'; '.join(dict.fromkeys(values))}" for name, values in notes.items() if len(set(values)) > 1)
    return "\n".join([*rows, *told])


def _figures(recorded: raw.Recorded) -> str:
    summary = recorded.summary
    if summary is None or summary.itl_ms is None:
        return "was cut short"
    first, *_, last = (one.p50 if one else float("nan") for one in summary.ttft_ms_by_turn)
    return (
        f"{first:15.0f} {last:8.0f} {summary.itl_ms.p50:8.1f} {summary.itl_ms.p99:8.1f} "
        f"{summary.tokens_per_s:9.1f} {summary.cached_tokens / max(1, summary.prompt_tokens):8.0%}"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
