"""The account of an engine's steps: the typical ones of each kind, what follows them, what the points cost.

Owns the putting together and its plain form. It does not know how time is assigned to rows (`critical`,
`delivery`) nor how the median one is chosen (`typical`).

Invariant: the rows of each typical one add up to its total.
"""

from __future__ import annotations

from statistics import median
from typing import Any

import msgspec

from tokenspeed.errors import UserError
from tokenspeed_tools.trace.cost import Cost, cost_of
from tokenspeed_tools.trace.critical import Budget, budgets
from tokenspeed_tools.trace.delivery import Way, ways
from tokenspeed_tools.trace.recording import Recording
from tokenspeed_tools.trace.steps import Span
from tokenspeed_tools.trace.typical import Typical, Whole
from tokenspeed_tools.trace.words import US

KINDS = {"decode": "decode only", "mixed": "decode and prompts", "prefill": "prompts only"}


class Account(msgspec.Struct, frozen=True):
    """All that `budget` tells: the steps, by kind, what follows them, and what the points cost."""

    seconds: float
    steps: Typical[Budget]
    kinds: dict[str, Typical[Budget]]
    tokens: Typical[Way] | None
    cost: Cost
    points_lost: int


def account_of(recording: Recording) -> Account:
    """Return the account of `recording`. Raises `UserError` if it holds no two steps."""
    found = budgets(recording.points)
    if not found:
        raise UserError("No two steps lie in the points: send a request, or watch for longer with --seconds N.")
    span = Span(found[0].span.begin_ns, found[-1].span.end_ns)
    of_kind = {kind: [each for each in found if each.step.kind == kind] for kind in KINDS}
    tokens = ways(recording.points)
    return Account(
        seconds=(span.end_ns - span.begin_ns) / 1e9,
        steps=Typical(found),
        kinds={kind: Typical(each) for kind, each in of_kind.items() if each},
        tokens=Typical(tokens) if tokens else None,
        cost=cost_of(recording.points, span, len(found)),
        points_lost=recording.points_lost,
    )


def told(account: Account) -> dict[str, Any]:
    """Return the account as plain values, times in microseconds."""
    return {
        "seconds": round(account.seconds, 6),
        "points_lost": account.points_lost,
        "steps": _typical(account.steps),
        "kinds": {
            kind: {**_typical(each), "rows_per_step": median(one.step.rows for one in each.wholes)}
            for kind, each in account.kinds.items()
        },
        "tokens": None if account.tokens is None else _typical(account.tokens),
        "cost": {**msgspec.structs.asdict(account.cost), "step_us": _us(account.cost.step_ns)},
    }


def _typical(typical: Typical[Any]) -> dict[str, Any]:
    return {
        "count": typical.count,
        "accounted": round(typical.accounted, 6),
        "median_us": _us(typical.median_ns),
        "median_rows_us": {row: _us(ns) for row, ns in typical.median_rows.items()},
        "p99_us": _us(typical.p99_ns),
        "p99_rows_us": {row: _us(ns) for row, ns in typical.p99_rows.items()},
        "p99_step": _number(typical.p99),
    }


def _number(whole: Whole) -> int:
    return whole.step.number


def _us(ns: float) -> float:
    return round(ns / US, 3)
