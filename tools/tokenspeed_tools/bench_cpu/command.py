r"""The command line of the CPU benchmark: which engines, in which order, and what is written.

    python -m tokenspeed_tools.bench_cpu --engine tokenspeed --engine transformers \
        --engine "llama.cpp=llama-server -m {model} --port {port} -t 2 -np 16 -c 36864"

starts the engines one after the other, `--rounds` times, so that the ratios between them are those of
one run on one machine. A JSON line for each engine and measurement goes to standard output and to the
end of `--json`:

    start    ready_s, memory_mib
    crowd    concurrency, prompt_tokens, new_tokens, ttft_ms_p50, tpot_ms_p50, tokens_per_s
    session  prompt_tokens and ttft_ms of each turn, ttft_ms_p50 of the turns behind the first
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import platform
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import torch

from tokenspeed.demo import find_demo
from tokenspeed_tools.bench.client import Client
from tokenspeed_tools.bench_cpu.engines import OWN, started
from tokenspeed_tools.bench_cpu.in_process import Transformers
from tokenspeed_tools.bench_cpu.traffic import REQUESTS, crowd, session
from tokenspeed_tools.bench_gpu.machine import commit

IN_PROCESS = "transformers"
Line = dict[str, Any]


def parser() -> argparse.ArgumentParser:
    """Return the parser of the options."""
    reader = argparse.ArgumentParser("bench-cpu", description="Measure the CPU engine beside others.")
    add = reader.add_argument
    known = ", ".join([*OWN, IN_PROCESS])
    add(
        "--engine", action="append", metavar="NAME[=COMMAND]", help=f"{known}, or a command with {{model}} and {{port}}"
    )
    add("--model", type=Path, default=find_demo(), help="a .gguf file or a folder (default: the demo model)")
    add("--concurrency", type=_numbers, default=tuple(REQUESTS), metavar="N,...", help="requests open at once")
    add("--rounds", type=int, default=1, help="how often the engines take turns (%(default)s)")
    add("--no-session", action="store_true", help="leave the conversation of six turns out")
    add("--json", type=Path, metavar="FILE", help="append the lines to FILE")
    add(
        "--log",
        type=Path,
        default=Path(tempfile.gettempdir()) / "bench-cpu.log",
        help="what the engines print (%(default)s)",
    )
    return reader


def main(argv: list[str]) -> int:
    """Measure and return the exit code."""
    options = parser().parse_args(argv)
    if options.model is None:
        print("bench-cpu: give --model: there is no demo model here.", file=sys.stderr)
        return 2
    commands = {}
    for text in options.engine or list(OWN):
        name, separator, command = text.partition("=")
        if not separator and name not in (*OWN, IN_PROCESS):
            print(f"bench-cpu: {name} is not known: give {name}=COMMAND.", file=sys.stderr)
            return 2
        commands[name] = command or OWN.get(name, "")
    lines: list[Line] = []
    failed = False
    for _ in range(options.rounds):
        for name, command in commands.items():
            try:
                lines.extend(_write(line, options.json) for line in _measure(name, command, options))
            except (RuntimeError, OSError, httpx.HTTPError) as error:
                print(f"bench-cpu: {name} failed: {error}", file=sys.stderr)
                failed = True
    print(table(lines), file=sys.stderr)
    return int(failed)


def table(lines: list[Line]) -> str:
    """Return the figures as a table; of several rounds the best, since company only makes slower."""
    rows = [f"{'engine':24} {'at once':>7} {'TTFT ms':>9} {'TPOT ms':>9} {'tokens/s':>9}"]
    crowds = [line for line in lines if line["kind"] == "crowd"]
    for name, concurrency in dict.fromkeys((line["engine"], line["concurrency"]) for line in crowds):
        own = [line for line in crowds if (line["engine"], line["concurrency"]) == (name, concurrency)]
        ttft, tpot = (min(line[figure] for line in own) for figure in ("ttft_ms_p50", "tpot_ms_p50"))
        rows.append(
            f"{name:24} {concurrency:7} {ttft:9.0f} {tpot:9.1f} {max(line['tokens_per_s'] for line in own):9.1f}"
        )
    sessions = [line for line in lines if line["kind"] == "session"]
    rows += [f"{line['engine']:24} session, ms to the first token of each turn: {line['ttft_ms']}" for line in sessions]
    return "\n".join(rows)


def _measure(name: str, command: str, options: argparse.Namespace) -> Iterator[Line]:
    known = {"engine": name, "command": command, "model": options.model.name, **_machine()}
    if name == IN_PROCESS and not command:
        model = Transformers(options.model)
        for concurrency in options.concurrency:
            yield {"kind": "crowd", **known, "concurrency": concurrency, **model.crowd(concurrency)}
        return
    with started(command, options.model, options.log) as running:
        yield {"kind": "start", **known, "ready_s": round(running.ready_s, 1), "memory_mib": running.memory_mib}

        async def measured(concurrency: int) -> Line:
            with contextlib.closing(Client(running.url)) as client:
                if concurrency:
                    figures = await crowd(client, running.model, concurrency)
                    return {"kind": "crowd", "concurrency": concurrency, **figures}
                return {"kind": "session", **await session(client, running.model)}

        for concurrency in (*options.concurrency, *(() if options.no_session else (0,))):
            figures = asyncio.run(measured(concurrency))
            yield {"kind": figures.pop("kind"), **known, **figures}


def _machine() -> Line:
    text = Path("/proc/cpuinfo").read_text()
    chip = next(
        (row.split(":")[1].strip() for row in text.splitlines() if row.startswith("model name")), platform.machine()
    )
    return {"chip": chip, "cores": len(os.sched_getaffinity(0)), "torch": torch.__version__, "commit": commit()}


def _numbers(text: str) -> tuple[int, ...]:
    numbers = tuple(int(part) for part in text.split(","))
    if any(number not in REQUESTS for number in numbers):
        raise argparse.ArgumentTypeError(f"{text!r}: {', '.join(map(str, REQUESTS))} are known")
    return numbers


def _write(line: Line, path: Path | None) -> Line:
    text = json.dumps(line)
    print(text, flush=True)
    if path is not None:
        with path.open("a") as file:
            file.write(text + "\n")
    return line
