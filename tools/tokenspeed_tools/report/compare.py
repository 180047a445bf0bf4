"""The table that a reader sees first: the figures of each run, against the first run's.

Owns which figures there are, which way is better, and when two count as the same. Knows no markup.

Invariant: a figure that a server did not tell is absent; nothing is filled in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from tokenspeed_tools.bench.raw import PerGpu, Spread, Summary
from tokenspeed_tools.report.measure import figure
from tokenspeed_tools.report.shown import Shown

SAME = 0.01  # a difference below this share is none


class Better(Enum):
    """Which way is better."""

    LESS = "less"
    MORE = "more"


@dataclass(frozen=True, slots=True)
class Measure:
    """A figure by name and unit; `value` takes it from a run, None where it is not known."""

    name: str
    unit: str
    better: Better
    value: Callable[[Shown], float | None]


@dataclass(frozen=True, slots=True)
class Cell:
    """A figure as text, what it is against the first run's ("0.83× better"), and whether no run has a better one."""

    text: str
    against: str
    best: bool


def _spread(field: str, part: str) -> Callable[[Shown], float | None]:
    def value(run: Shown) -> float | None:
        spread: Spread | None = getattr(run.summary, field)
        return None if spread is None else float(getattr(spread, part))

    return value


def _rate(field: str) -> Callable[[Shown], float | None]:
    """Return the reader of a rate of tokens; there is none without good requests."""

    def value(run: Shown) -> float | None:
        summary: Summary = run.summary
        return float(getattr(summary, field)) if summary.requests.ok else None

    return value


def _input_rate(field: str) -> Callable[[Shown], float | None]:
    """Return the reader of a rate with input tokens; there is none where prompts were not counted."""

    def value(run: Shown) -> float | None:
        return _rate(field)(run) if run.ok and all(request.prompt_tokens is not None for request in run.ok) else None

    return value


def _per_gpu(run: Shown) -> float | None:
    gpu: PerGpu | None = run.summary.per_gpu
    return gpu.tpm_output if gpu and run.ok else None


def _failed(run: Shown) -> float | None:
    return 100 * (len(run.counted) - len(run.ok)) / len(run.counted) if run.counted else None


def _cached(run: Shown) -> float | None:
    known = [request for request in run.ok if request.cached_tokens is not None and request.prompt_tokens is not None]
    prompt = sum(request.prompt_tokens or 0 for request in known)
    return 100 * sum(request.cached_tokens or 0 for request in known) / prompt if prompt else None


def _tps_per_user(run: Shown) -> float | None:
    return run.summary.tps_per_user


MEASURES = (
    Measure("TTFT p50", "ms", Better.LESS, _spread("ttft_ms", "p50")),
    Measure("TTFT p99", "ms", Better.LESS, _spread("ttft_ms", "p99")),
    Measure("ITL p50", "ms", Better.LESS, _spread("itl_ms", "p50")),
    Measure("ITL p99", "ms", Better.LESS, _spread("itl_ms", "p99")),
    Measure("longest pause", "ms", Better.LESS, _spread("gap_ms", "max")),
    Measure("TPOT p50", "ms", Better.LESS, _spread("tpot_ms", "p50")),
    Measure("TPM output", "tokens/min", Better.MORE, _rate("tpm_output")),
    Measure("TPM output + uncached input", "tokens/min", Better.MORE, _input_rate("tpm_output_and_uncached")),
    Measure("TPM all", "tokens/min", Better.MORE, _input_rate("tpm_all")),
    Measure("TPM output per GPU", "tokens/min", Better.MORE, _per_gpu),
    Measure("per user, p50", "tokens/s", Better.MORE, _tps_per_user),
    Measure("cached share of input", "%", Better.MORE, _cached),
    Measure("failed", "%", Better.LESS, _failed),
)


def comparison(runs: Sequence[Shown]) -> list[tuple[Measure, list[Cell]]]:
    """Return every measure that any run has, with a cell for each run."""
    found = []
    for measure in MEASURES:
        values = [measure.value(run) for run in runs]
        if any(value is not None for value in values):
            found.append((measure, cells(values, measure.better)))
    return found


def cells(values: Sequence[float | None], better: Better) -> list[Cell]:
    """Return the cells of one measure; nothing is best when all known values are the same."""
    known = [value for value in values if value is not None]
    top = (min if better is Better.LESS else max)(known)
    alike = all(same(value, top) for value in known)
    return [
        Cell(
            figure(value),
            "" if index == 0 else against(values[0], value, better),
            best=value is not None and not alike and same(value, top),
        )
        for index, value in enumerate(values)
    ]


def same(one: float, other: float) -> bool:
    """Return whether two values are too near each other to call one better."""
    return abs(one - other) <= SAME * max(abs(one), abs(other))


def against(first: float | None, value: float | None, better: Better) -> str:
    """Return the ratio to the first run's value and what it means, in words."""
    if first is None or value is None:
        return ""
    if same(first, value):
        return "same"
    word = "better" if (value < first) == (better is Better.LESS) else "worse"
    return f"{value / first:.2f}× {word}" if first else word
