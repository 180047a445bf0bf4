"""What a person reads: one table for each part.

Owns the words and the columns, and no decision: verdicts come from `compare`.
"""

from __future__ import annotations

from tokenspeed_tools.bench_suite import compare
from tokenspeed_tools.bench_suite.compare import Change
from tokenspeed_tools.bench_suite.line import Figure, Line

DIGITS = 3
# A load above this share of the cores is not this benchmark's own.
BUSY = 0.75


def table(now: Line, then: Line | None) -> str:
    """Return the figures of `now`, beside those of `then` if there is a line to compare with."""
    rows = [f"{now.part}: {_origin(now)}, {now.seconds:.0f} s; {_compared(now, then)}"]
    rows.append(
        f"  {'figure':34} {'unit':12} {'now':>9} {'spread':>7} {'before':>9} {'change':>8} {'noise':>6}  verdict"
    )
    if now.load > BUSY * _cores(now):
        rows.insert(1, f"  DOUBT: others kept the machine busy: load {now.load:g} on {_cores(now)} cores")
    rows += [_row(name, figure, then, _change(now, then, name)) for name, figure in now.figures.items()]
    return "\n".join(rows)


def _change(now: Line, then: Line | None, name: str) -> Change | None:
    return None if then is None else compare.change(now, then, name)


def _row(name: str, figure: Figure, then: Line | None, change: Change | None) -> str:
    unit = f"{figure.unit} {'<' if figure.better == 'lower' else '>'}"
    start = f"  {name:34} {unit:12} {number(figure.median):>9} {figure.spread_percent:6.0f}%"
    if then is None or change is None:
        return f"{start} {'-':>9} {'-':>8} {'-':>6}  new"
    before = number(then.figures[name].median)
    return f"{start} {before:>9} {change.percent:+7.1f}% {change.noise_percent:5.0f}%  {change.verdict}"


def number(value: float) -> str:
    """Return `value` with three digits that count, and all those before the point."""
    if value >= 10 ** (DIGITS - 1):
        return f"{value:,.0f}"
    return f"{value:.{DIGITS}g}"


def _origin(line: Line) -> str:
    return f"commit {line.commit}{' with changes' if line.dirty else ''}"


def _cores(line: Line) -> int:
    """Return the cores of the machine, with which its kind ends."""
    return int(line.kind.split()[-2])


def _compared(now: Line, then: Line | None) -> str:
    if then is None:
        return "no earlier line of this kind of machine and these sizes"
    speeds = ", ".join(f"{name} {speed:.2f}" for name, speed in compare.speeds_against(now, then).items())
    changed = [f"{name} {was} then" for name, was in then.versions.items() if now.versions.get(name) != was]
    return "; ".join(
        [f"before: {_origin(then)} of {then.date}", f"the machine's speed against then: {speeds}", *changed]
    )
