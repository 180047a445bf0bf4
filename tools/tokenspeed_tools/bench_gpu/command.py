"""The command line of the GPU benchmark: options, the order of measurements, one JSON line each.

Lines go to standard output and to the end of the file given by `--json`; a line is written as soon as
it is known, so that a run cut short keeps what it has. Kinds of lines, besides engine, device, shape,
layers, dtype and commit, which all have:

    start    start_s, pages_total
    decode   batch, context_tokens, tpot_ms, and processor time a step: executor_us, scheduler_us, ...
    ttft     context_tokens, ttft_ms
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import uvloop

from tokenspeed.config import EngineConfig
from tokenspeed.engine import AsyncEngine
from tokenspeed.errors import StartError, TokenSpeedError
from tokenspeed_tools.bench_gpu.machine import chip, commit
from tokenspeed_tools.bench_gpu.measure import LONG_TOKENS, Meter, Point
from tokenspeed_tools.bench_gpu.shapes import SHAPES, layers_of, write_shape

GRID = (Point(1, 1024), Point(8, 1024), Point(32, 1024), Point(128, 1024), Point(1, 32768), Point(8, 32768))
TTFT = (8192,)
SEED = 1


def grid(text: str) -> tuple[Point, ...]:
    """Read places such as "1x1024,8x32768"; "" is none."""
    try:
        return tuple(Point(*map(int, place.split("x", 1))) for place in text.split(",") if place)
    except (ValueError, TypeError):
        raise argparse.ArgumentTypeError(f"{text!r} is no list such as 1x1024,8x32768 (batch x context)") from None


def contexts(text: str) -> tuple[int, ...]:
    """Read lengths such as "8192,65536"; "" is none."""
    try:
        return tuple(int(length) for length in text.split(",") if length)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no list of lengths such as 8192,65536") from None


def parser() -> argparse.ArgumentParser:
    """Return the parser of the options."""
    reader = argparse.ArgumentParser("bench-gpu", description="Measure the engine with dummy weights.")
    add = reader.add_argument
    add("--shape", choices=sorted(SHAPES), default="llama8b", help="sizes of the model (%(default)s)")
    add("--layers", type=int, help="this many layers instead of the shape's own")
    add("--grid", type=grid, default=GRID, metavar="BxC,...", help="batch x context of the decode runs; '' for none")
    add("--ttft", type=contexts, default=TTFT, metavar="C,...", help="prompts' lengths for TTFT; '' for none")
    add("--device", default="auto", help="auto, cpu or cuda (%(default)s)")
    add("--dtype", default="auto", help="type computed in (%(default)s)")
    add("--max-num-seqs", type=int, metavar="N", help="requests computed at once (default: the device's)")
    add("--max-model-len", type=int, metavar="TOKENS", help="longest context (default: what the runs need)")
    add("--overlap", type=int, choices=(0, 1), default=1, help="steps planned ahead (%(default)s)")
    add("--json", type=Path, metavar="FILE", help="append the lines to FILE")
    add("--commit", help="the commit that is measured (default: asked of git)")
    return reader


def main(argv: list[str]) -> int:
    """Measure and return the exit code."""
    options = parser().parse_args(argv)
    try:
        with tempfile.TemporaryDirectory(prefix="bench-gpu-") as folder:
            path = write_shape(Path(folder) / options.shape, options.shape, options.layers)
            uvloop.run(_measure(engine_config(path, options), options))
    except (TokenSpeedError, RuntimeError) as error:
        _say(f"failed: {error}")
        return 1
    return 0


def engine_config(path: Path, options: argparse.Namespace) -> EngineConfig:
    """Return the settings to measure with: no prefix is ever found in the cache."""
    longest = max([point.context_tokens for point in options.grid] + list(options.ttft), default=1)
    return EngineConfig(
        model=str(path),
        device=options.device,
        dtype=options.dtype,
        load_format="dummy",
        max_model_len=options.max_model_len or longest + LONG_TOKENS + 1,
        max_num_seqs=options.max_num_seqs,
        overlap=options.overlap,
        enable_prefix_caching=False,
    )


async def _measure(config: EngineConfig, options: argparse.Namespace) -> None:
    engine = AsyncEngine(config, on_event=_say_phase)
    _check_fits(engine, options.grid)
    begin_s = time.perf_counter()
    await engine.start()
    start_s = time.perf_counter() - begin_s
    known = {
        "engine": "tokenspeed",
        "device": chip(engine.device.name),
        "shape": options.shape,
        "layers": options.layers or layers_of(options.shape),
        "dtype": engine.model.dtype,
        "commit": options.commit or commit(),
    }

    def write(kind: str, **figures: float) -> None:
        _write({"kind": kind, **known, **{name: round(value, 4) for name, value in figures.items()}}, options.json)

    try:
        write("start", start_s=start_s, pages_total=(await engine.stats()).pages_total)
        meter = Meter(engine, SEED, _say)
        for point in options.grid:
            tpot_ms = await meter.tpot_ms(point)
            host = {f"{name}_us": spent_us for name, spent_us in (await meter.host_us(point)).items()}
            write("decode", **point._asdict(), tpot_ms=tpot_ms, **host)
        for context_tokens in options.ttft:
            write("ttft", context_tokens=context_tokens, ttft_ms=await meter.ttft_ms(context_tokens))
    finally:
        await engine.close()


def _check_fits(engine: AsyncEngine, points: tuple[Point, ...]) -> None:
    largest = max((point.batch for point in points), default=0)
    if largest > engine.device.max_num_seqs:
        raise StartError(
            f"a batch of {largest} would not run at once: at most {engine.device.max_num_seqs} requests do. "
            "Give a larger --max-num-seqs or another --grid."
        )


def _write(line: dict[str, Any], path: Path | None) -> None:
    text = json.dumps(line)
    print(text, flush=True)
    if path is not None:
        with path.open("a") as file:
            file.write(text + "\n")


def _say_phase(text: str) -> None:
    """Tell an event of the start; of a share that is done, the first and the last alone."""
    if not text.endswith("%") or text.endswith((" 0%", " 100%")):
        _say(text)


def _say(text: str) -> None:
    print(f"bench-gpu: {text}", file=sys.stderr, flush=True)
