"""Where a decode step's time goes on the GPU: `python -m tokenspeed_tools.bench_gpu.steps MODEL`.

Runs the native core and the executor in one process, profiles some decode steps at each batch size
with torch's profiler, and prints the share of time in which the GPU computes nothing and the time
of each kernel. One JSON line a batch size goes to --json.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import time
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch._C._autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from tokenspeed.config import ExecutorConfig, ModelConfig
from tokenspeed.executor.cuda.executor import CudaExecutor
from tokenspeed.model.config import read_shape
from tokenspeed_tools.bench_gpu.loop import FULL, Loop

STEPS = 24
TIMED_STEPS = 96
KERNELS_SHOWN = 14


class Interval(NamedTuple):
    """Something that the GPU did, in microseconds."""

    name: str
    begin: float
    end: float


class Report(NamedTuple):
    """What the profile of one batch size says; kernels by microseconds per step."""

    step_us: float
    profiled_step_us: float
    idle_share: float
    submit_us: float
    kernels: dict[str, float]


def measure(executor: CudaExecutor, config: ExecutorConfig, batch: int, context: int, full: bool) -> Report:
    """Decode `batch` requests behind `context` tokens, first timed and then profiled; greedy, or all that is `full`."""
    loop = Loop(executor, config, asked=FULL if full else None)
    for _ in range(batch):
        loop.add(context, TIMED_STEPS + 3 * STEPS)
    chunks = -(-batch * context // config.chunked_prefill_size)
    loop.run(chunks + STEPS)
    submitted = loop.submit_s
    begin_s = time.perf_counter()
    loop.run(TIMED_STEPS)
    step_us = (time.perf_counter() - begin_s) / TIMED_STEPS * 1e6
    submit_us = (loop.submit_s - submitted) / TIMED_STEPS * 1e6
    with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as profiler:
        loop.run(STEPS)
        torch.cuda.synchronize()
    intervals = sorted(_intervals(profiler.events()), key=lambda interval: interval.begin)
    loop.run()
    return _report(intervals, step_us, submit_us)


def _report(intervals: list[Interval], step_us: float, submit_us: float) -> Report:
    # The first and last steps are cut: the profiler starts and stops beside them.
    starts = [interval.begin for interval in intervals if "apply" in interval.name]
    first, last = starts[2], starts[-2]
    steps = len(starts) - 4
    inside = [interval for interval in intervals if first <= interval.begin < last]
    kernels: dict[str, float] = defaultdict(float)
    for interval in inside:
        kernels[interval.name] += (interval.end - interval.begin) / steps
    largest = sorted(kernels.items(), key=lambda item: -item[1])
    idle = 1.0 - _busy(inside) / (last - first)
    return Report(step_us, (last - first) / steps, idle, submit_us, dict(largest))


def _busy(intervals: Iterable[Interval]) -> float:
    """Return the time that `intervals`, sorted by their begin, cover."""
    covered, until = 0.0, float("-inf")
    for interval in intervals:
        covered += max(0.0, interval.end - max(interval.begin, until))
        until = max(until, interval.end)
    return covered


def _intervals(events: Iterable[Any]) -> Iterable[Interval]:
    for event in events:
        if event.device_type == DeviceType.CUDA:
            yield Interval(event.name, event.time_range.start, event.time_range.end)


def main() -> None:
    """Measure every batch size and print it."""
    parser = argparse.ArgumentParser(prog="tokenspeed_tools.bench_gpu.steps", description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--batches", default="1,32,128", help="batch sizes (%(default)s)")
    parser.add_argument(
        "--sampling", default="plain,full", help="greedy, or with penalties and log-probabilities (%(default)s)"
    )
    parser.add_argument("--context", type=int, default=1024, help="tokens of each prompt (%(default)s)")
    parser.add_argument("--kernels", default="", help="overrides of kernels, family=solution")
    parser.add_argument("--commit", default="", help="what the JSON lines call this state")
    parser.add_argument("--json", type=Path, help="file that lines are added to")
    options = parser.parse_args()
    model = ModelConfig(
        path=str(options.model), served_name="", dtype="bfloat16", max_model_len=40_000, load_format="dummy"
    )
    batches = [int(size) for size in options.batches.split(",")]
    config = ExecutorConfig(
        model=model,
        device="cuda",
        max_num_seqs=max(batches),
        chunked_prefill_size=8192,
        page_tokens=64,
        kv_cache_bytes=0,
        kernels=options.kernels,
    )
    begin_s = time.perf_counter()
    executor = CudaExecutor.load(config, lambda phase, share: None)
    print(f"loaded in {time.perf_counter() - begin_s:.1f} s, {executor.pages_total[0]} pages", flush=True)
    shape = read_shape(options.model, dummy=True)
    for batch, sampling in itertools.product(batches, options.sampling.split(",")):
        report = measure(executor, config, batch, options.context, sampling == "full")
        _print(batch, sampling, report)
        if options.json is not None:
            line = {
                "kind": "step",
                "engine": "tokenspeed",
                "device": torch.cuda.get_device_name(),
                "shape": options.model.name,
                "layers": shape.layers,
                "batch": batch,
                "context_tokens": options.context,
                "sampling": sampling,
                "step_us": round(report.step_us, 1),
                "gpu_idle_share": round(report.idle_share, 4),
                "submit_us": round(report.submit_us, 1),
                "kernels_us": {_short(name): round(value, 1) for name, value in report.kernels.items()},
                "commit": options.commit,
            }
            with options.json.open("a") as lines:
                lines.write(json.dumps(line) + "\n")
    executor.close()


def _print(batch: int, sampling: str, report: Report) -> None:
    print(
        f"batch {batch}, {sampling}: step {report.step_us:.0f} us, profiled {report.profiled_step_us:.0f} us, "
        f"GPU idle {report.idle_share:.2%}, submit {report.submit_us:.0f} us on the host"
    )
    for name, spent_us in list(report.kernels.items())[:KERNELS_SHOWN]:
        print(f"  {spent_us:8.1f} us  {_short(name)}")
    rest = list(report.kernels.values())[KERNELS_SHOWN:]
    if rest:
        print(f"  {sum(rest):8.1f} us  {len(rest)} others, median {statistics.median(rest):.1f} us", flush=True)


def _short(name: str) -> str:
    return name.split("<")[0].split("(")[0].removeprefix("void ")[:72]


if __name__ == "__main__":
    main()
