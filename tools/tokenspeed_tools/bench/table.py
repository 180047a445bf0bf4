"""The figures of a run as text for people.

Owns the layout. Every number comes from the summary.
"""

from __future__ import annotations

from collections.abc import Sequence

from tokenspeed_tools.bench.raw import Run, Spread, Summary

NONE = "-"


def figures(run: Run, summary: Summary) -> str:
    """Return the figures of one run."""
    counts = summary.requests
    failed = "".join(
        f", {count} {what}" for count, what in ((counts.failed, "FAILED"), (counts.interrupted, "cut short")) if count
    )
    rows = [
        f"{run.mode} of {run.target.model} at {run.target.url} ({run.target.server})",
        f"  requests        {counts.ok} good{failed}; {counts.warmup} before them to warm up; "
        f"{summary.concurrency_mean:.1f} open on average, {summary.duration_s:.1f} s",
        f"  tokens          prompt {_seen(summary.prompt_tokens, summary.prompt_tokens_asked)}, of which "
        f"{summary.cached_tokens:,} cached; output {_seen(summary.output_tokens, summary.output_tokens_asked)}",
        f"  tokens/minute   output {summary.tpm_output:,.0f}; output and uncached input "
        f"{summary.tpm_output_and_uncached:,.0f}; all {summary.tpm_all:,.0f}",
    ]
    if summary.per_gpu is not None:
        each = summary.per_gpu
        rows.append(
            f"  per GPU         output {each.tpm_output:,.0f}; output and uncached input "
            f"{each.tpm_output_and_uncached:,.0f}; all {each.tpm_all:,.0f}"
        )
    rows.append(f"  tokens/s        {summary.tokens_per_s:,.1f} in all, {_number(summary.tps_per_user)} for each user")
    rows.append("")
    rows.append(f"  {'ms':14}{'p50':>11}{'p90':>11}{'p99':>11}{'mean':>11}{'max':>11}")
    spreads = {
        "TTFT": summary.ttft_ms,
        "ITL": summary.itl_ms,
        "TPOT": summary.tpot_ms,
        "gap": summary.gap_ms,
        "whole reply": summary.e2e_ms,
        "sent late by": summary.late_ms,
    }
    if len(summary.ttft_ms_by_turn) > 1:
        spreads |= {f"TTFT turn {turn}": spread for turn, spread in enumerate(summary.ttft_ms_by_turn)}
    rows += [_row(name, spread) for name, spread in spreads.items()]
    rows += [f"  note: {name}: {value}" for name, value in run.notes.items()]
    rows += [f"  failed {count} times: {error}" for error, count in summary.errors.items()]
    rows += [f"  DOUBT: {warning}" for warning in summary.warnings]
    return "\n".join(rows)


def sweep(points: Sequence[tuple[Run, Summary]]) -> str:
    """Return one row for each run of a sweep."""
    per_gpu = all(summary.per_gpu for _, summary in points)
    head = (
        "at once",
        "good",
        "bad",
        "TTFT p50",
        "ITL p50",
        "ITL p99",
        "tok/s/user",
        "TPM/GPU" if per_gpu else "TPM",
        "TPM all",
    )
    rows = ["".join(f"{name:>12}" for name in head)]
    for run, summary in points:
        counts = summary.requests
        cells = (
            str(concurrency(run)),
            str(counts.ok),
            str(counts.failed + counts.interrupted),
            NONE if summary.ttft_ms is None else _number(summary.ttft_ms.p50),
            *((_number(itl.p50), _number(itl.p99)) if (itl := summary.itl_ms) else (NONE, NONE)),
            _number(summary.tps_per_user),
            f"{summary.per_gpu.tpm_output if summary.per_gpu else summary.tpm_output:,.0f}",
            f"{summary.per_gpu.tpm_all if summary.per_gpu else summary.tpm_all:,.0f}",
        )
        rows.append("".join(f"{cell:>12}" for cell in cells))
    rows += [f"DOUBT, {concurrency(run)} at once: {text}" for run, summary in points for text in summary.warnings]
    return "\n".join(rows)


def concurrency(run: Run) -> int | None:
    """Return how many requests or sessions the run kept open; None where each came at its time."""
    value = run.workload.get("sessions" if run.mode == "agentic" else "concurrency")
    return value if isinstance(value, int) else None


def _row(name: str, spread: Spread | None) -> str:
    if spread is None:
        return f"  {name:14}{NONE:>11}"
    values = (spread.p50, spread.p90, spread.p99, spread.mean, spread.max)
    return f"  {name:14}" + "".join(f"{value:11,.2f}" for value in values)


def _seen(seen: int, asked: int | None) -> str:
    return f"{seen:,}" if asked in (None, seen) else f"{seen:,} ({asked:,} asked for)"


def _number(value: float | None) -> str:
    return NONE if value is None else f"{value:,.1f}"
