"""`trace budget`: where each microsecond of the median and of the p99 step went.

Owns the command and the table. It does not know how the account is made (`account`).

Invariant: the rows of a table add up to its total.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

from tokenspeed_tools.trace.account import KINDS, Account, account_of, told
from tokenspeed_tools.trace.critical import COMPUTE_ROWS, ROWS, Budget
from tokenspeed_tools.trace.delivery import LEGS
from tokenspeed_tools.trace.engines import add_engine, find_engine
from tokenspeed_tools.trace.past import Past
from tokenspeed_tools.trace.reasons import Usual, reasons
from tokenspeed_tools.trace.recording import Recording, load, record
from tokenspeed_tools.trace.typical import Typical
from tokenspeed_tools.trace.words import US, counted, duration

LINE = "  {:<42} {:>12} {:>7} {:>12} {:>7}"
SLOW_SHARE = 0.1  # a p99 step that is so much longer than the median needs no reason


def main(argv: list[str]) -> int:
    """Print the budget of the steps that an engine has just computed, or that a file holds."""
    options = _parser().parse_args(argv)
    recording = _recording(options.file, options.engine, options.seconds)
    account = account_of(recording)
    if options.json:
        print(msgspec.json.encode(told(account)).decode())
    else:
        print("\n".join(page(account, Past(recording.points, recording.end_ns, recording.topology.edges))))
    return 0


def _recording(file: Path | None, engine: str | None, seconds: float) -> Recording:
    if file is not None:
        return load(file)
    return record(find_engine(engine), seconds, past=not seconds)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tokenspeed trace budget", description="Tell where the time of a step went.")
    add_engine(parser)
    parser.add_argument("--file", type=Path, metavar="POINTS", help="a recording (`trace record --format points`)")
    parser.add_argument(
        "--seconds", type=float, default=0.0, metavar="N", help="watch for so long (default: what was just done)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object, times in microseconds")
    return parser


def page(account: Account, past: Past) -> Iterator[str]:
    """Yield the lines of the account."""
    busy = sum(each.total_ns for each in account.steps.wholes) / 1e9
    yield (
        f"{counted(account.steps.count, 'step')} in {account.seconds:.1f} s; the engine had work for "
        f"{min(1.0, busy / account.seconds):.0%} of it. Accounted for: {account.steps.accounted:.1%}."
    )
    for kind, typical in account.kinds.items():
        yield from ("", f"{_head(kind, typical)}; median step and p99 step (number {typical.p99.step.number})")
        yield from _table(typical, ROWS, COMPUTE_ROWS)
        yield f"  p99: {unusual(typical, past)}"
    if account.tokens is not None:
        yield from ("", f"after the step: {counted(account.tokens.count, 'text')} on the way to their clients")
        yield from _table(account.tokens, LEGS, ())
    yield from ("", _cost(account))
    if account.points_lost:
        yield f"{counted(account.points_lost, 'point')} were overwritten before they were read; steps may be missing."


def _head(kind: str, typical: Typical[Budget]) -> str:
    rows = _spread([each.step.rows for each in typical.wholes], "row")
    tokens = [each.step.prompt_tokens for each in typical.wholes]
    of_prompts = f", {_spread(tokens, 'prompt token')}" if any(tokens) else ""
    return f"{KINDS[kind]}: {counted(typical.count, 'step')} of {rows}{of_prompts}"


def _spread(values: Sequence[int], noun: str) -> str:
    low, high = min(values), max(values)
    return counted(low, noun) if low == high else f"{low:,} to {high:,} {noun}s (median {median(values):,.0f})"


def _table(typical: Typical[Any], order: Sequence[str], device: Sequence[str]) -> Iterator[str]:
    yield LINE.format("", "median µs", "", "p99 µs", "").rstrip()
    for row in typical.rows(order):
        yield _line(row, typical.median_rows.get(row, 0.0), typical.p99_rows.get(row, 0.0), typical)
    if device:
        stood = [sum(ns for row, ns in rows.items() if row not in device) for rows in _both(typical)]
        yield _line("the device stood still", stood[0], stood[1], typical)
    yield _line("total", typical.median_ns, typical.p99_ns, typical)


def _both(typical: Typical[Any]) -> tuple[dict[str, float], dict[str, float]]:
    return typical.median_rows, typical.p99_rows


def _line(name: str, median_ns: float, p99_ns: float, typical: Typical[Any]) -> str:
    shares = median_ns / (typical.median_ns or 1), p99_ns / (typical.p99_ns or 1)
    return LINE.format(name, f"{median_ns / US:,.0f}", f"{shares[0]:.1%}", f"{p99_ns / US:,.0f}", f"{shares[1]:.1%}")


def unusual(typical: Typical[Budget], past: Past) -> str:
    """Return what was unusual about the p99 step, in a sentence."""
    excess = typical.p99_ns - typical.median_ns
    if excess < SLOW_SHARE * typical.median_ns:
        return "nothing, it is as good as the median step."
    more = {row: ns - typical.median_rows.get(row, 0.0) for row, ns in typical.p99_rows.items()}
    row = max(more, key=lambda each: more[each])
    steps = [each.step for each in typical.middle]
    usual = Usual(round(median(step.rows for step in steps)), round(median(step.prompt_tokens for step in steps)))
    why = reasons(past, typical.p99.step, typical.p99.span, excess, usual)
    return f"{duration(excess)} longer, {duration(more[row])} of it in {row!r}; {why}."


def _cost(account: Account) -> str:
    cost = account.cost
    share = cost.step_ns / (account.steps.median_ns or 1)
    return (
        f"points: {cost.native_per_step:.0f} native ones a step at {cost.native_ns:.0f} ns and "
        f"{cost.python_per_step:.0f} from Python at {cost.python_ns:.0f} ns: {cost.step_ns / US:.0f} µs, "
        f"{share:.2%} of the median step, spread over all processes"
    )
