"""What planning a step costs: the native scheduler by itself, and through its face in Python.

The native side is `native/tests/scheduler_bench.cpp`, built when it is needed; the face is driven
through the same events here. `crossing` is what the face's plan and result take of the native ones'
time: copying out, unpacking, objects.

Invariant: both sides plan decode steps of the same rows, contexts and pages.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
from collections import deque
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import numpy as np

from tokenspeed.messages.base import pack_ids
from tokenspeed.messages.executor import ROW_INTS
from tokenspeed.scheduling.scheduler import CoreConfig, Plan, Scheduler
from tokenspeed_tools.bench_suite.part import Anchor, Kind, Measure, Part, Sizes, Values, time_of
from tokenspeed_tools.bench_suite.timing import share

NATIVE_TESTS = Path(__file__).parents[4] / "native/tests"
ROWS = (1, 64, 256, 1024)
PROMPT_TOKENS = (2048, 8192)
PAGE_TOKENS = 64
STEP_TOKENS = 8192
DRAWN = 17
ANCHORS: dict[str, Anchor] = {"native": "hash", "face": "objects"}
CASES = tuple(product(PROMPT_TOKENS, ROWS))

Series = dict[str, list[float]]


def suffix(rows: int, prompt_tokens: int) -> str:
    """Return how the figures of a case end."""
    return f"{rows}x{prompt_tokens}"


@contextlib.contextmanager
def prepare(sizes: Sizes) -> Iterator[Measure]:
    """Build the native bench."""
    printed_by(sizes["steps"], *CASES[0])

    def measure(number: int) -> Values:
        found: dict[str, float] = {}
        for prompt_tokens, rows in CASES:
            # Side by side, so that both see the machine at one speed.
            found |= native_values(printed_by(sizes["steps"], prompt_tokens, rows))
            found |= face_values(rows, prompt_tokens, sizes["steps"], found)
        return {name: found[name] for name in FIGURES}

    yield measure


def printed_by(steps: int, prompt_tokens: int, rows: int) -> str:
    """Return what the native bench prints about one case; raise `RuntimeError` if it cannot be built or fails."""
    arguments = f"STEPS={steps} {rows} {prompt_tokens}"
    command = ["make", "-s", "-C", str(NATIVE_TESTS), "bench-scheduler", arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed: {done.stderr[-1000:]}")
    return done.stdout


def native_values(printed: str) -> dict[str, float]:
    """Return the figures in what the native bench prints."""
    series = [json.loads(text) for text in printed.splitlines() if text.startswith("{")]
    return {
        f"native_{figure}_{suffix(line['rows'], line['prompt_tokens'])}": line[figure]
        for line in series
        if not line["waiting"]
        for figure in ("plan_us_p50", "plan_us_p99", "result_us_p50")
    }


def face_values(rows: int, prompt_tokens: int, steps: int, native: Values) -> dict[str, float]:
    """Return the face's figures of one case, and the crossing's beside the `native` ones."""
    end = suffix(rows, prompt_tokens)
    series = decode_us(rows, prompt_tokens, steps)
    plan_us, result_us = (share(series[name], 50) for name in ("plan", "result"))
    native_us = native[f"native_plan_us_p50_{end}"] + native[f"native_result_us_p50_{end}"]
    return {
        f"face_plan_us_p50_{end}": plan_us,
        f"face_plan_us_p99_{end}": share(series["plan"], 99),
        f"face_result_us_p50_{end}": result_us,
        f"crossing_of_native_{end}": (plan_us + result_us) / native_us,
    }


def decode_us(rows: int, prompt_tokens: int, steps: int) -> Series:
    """Return the microseconds of each plan and each result while `rows` requests decode."""
    ramp = 2 * (rows * (prompt_tokens // STEP_TOKENS + 1) + 8)
    output_tokens = steps + ramp + 8
    length = prompt_tokens + output_tokens
    core = Scheduler(
        CoreConfig(
            page_tokens=PAGE_TOKENS,
            pages_total=(rows * (length // PAGE_TOKENS + 1) + 1,),
            windows=(0,),
            slots=rows + 1,
            step_tokens=STEP_TOKENS,
            step_tokens_mixed=STEP_TOKENS,
            max_model_len=length,
        )
    )
    for row in range(rows):
        ids = (np.arange(prompt_tokens, dtype=np.int32) + row * 7919).tobytes()
        core.submit(0, row + 1, ids, session=row + 1, max_tokens=output_tokens)
    drive = _Drive(core)
    while not drive.step({"plan": [], "result": []}, rows):
        pass
    series: Series = {"plan": [], "result": []}
    for _ in range(steps):
        drive.step(series, rows)
    core.close()
    return series


class _Drive:
    """An executor that draws the same id for every row, two steps behind."""

    def __init__(self, core: Scheduler) -> None:
        self._core = core
        self._flights: deque[Plan] = deque()
        self._now_us = 0

    def step(self, series: Series, rows: int) -> bool:
        """Plan a step and answer an older one; return whether all `rows` decoded."""
        self._now_us += 2
        begin = time.perf_counter()
        plan = self._core.plan(self._now_us)
        series["plan"].append((time.perf_counter() - begin) * 1e6)
        if plan is not None:
            self._flights.append(plan)
            if len(self._flights) < 2:
                return False
        done = self._flights.popleft()
        counts, ids = (pack_ids([number] * done.sample_rows) for number in (1, DRAWN))
        begin = time.perf_counter()
        self._core.result(self._now_us + 1, done.step, 1000, counts, ids)
        series["result"].append((time.perf_counter() - begin) * 1e6)
        return plan is not None and not plan.ids and len(plan.rows) == rows * ROW_INTS * 4


def _figures() -> dict[str, Kind]:
    kinds = {}
    for prompt_tokens, rows in CASES:
        end = suffix(rows, prompt_tokens)
        for side in ANCHORS:
            for figure in ("plan_us_p50", "plan_us_p99", "result_us_p50"):
                kinds[f"{side}_{figure}_{end}"] = time_of("us", ANCHORS[side])
        kinds[f"crossing_of_native_{end}"] = Kind("x of native", "lower", "none")
    return kinds


FIGURES = _figures()
PART = Part(
    name="plan",
    shows="planning a step of 1 to 1,024 rows: the native scheduler, and its face in Python (rows x prompt tokens)",
    about_s=50,
    rounds=5,
    sizes={"steps": 1000},
    figures=FIGURES,
    prepare=prepare,
)
