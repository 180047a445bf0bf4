"""Which requests a timeline shows, and in which lane each lies.

A lane is a session when sessions have several requests, and otherwise a place that the next request takes when the
last one has ended. Where there is too much to draw, what is kept is chosen around the longest wait, and said. Knows
no drawing. Invariant: no two requests of a lane of places overlap.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from tokenspeed_tools.bench.raw import Request

LANES = 32


@dataclass(frozen=True, slots=True)
class Lanes:
    """`rows` are (name, requests by time sent); `note` says what was left out, "" when nothing was."""

    rows: list[tuple[str, list[Request]]]
    what: str
    note: str


def wait_s(request: Request) -> float:
    """Return the seconds until the first token, or until the end where none came."""
    return (request.first_token_s if request.first_token_s is not None else request.end_s) - request.sent_s


def lanes(requests: Sequence[Request], most: int) -> Lanes:
    """Return lanes with at most `most` of the requests."""
    ordered = sorted(requests, key=lambda request: request.sent_s)
    window = _around_longest(ordered, most)
    if len({request.session for request in window}) < len(window):
        rows = _sessions(window)
        what = "session"
    else:
        rows = _places(window)
        what = "place"
    kept = _longest_lanes(rows)
    shown = sum(len(row) for _, row in kept)
    note = ""
    if shown < len(ordered):
        note = (
            f"Shown are {shown:,} of {len(ordered):,} requests: {len(kept)} of {len(rows)} lanes "
            f"with the longest waits for a first token, in the time around the longest of all."
        )
    return Lanes(kept, what, note)


def _around_longest(ordered: Sequence[Request], most: int) -> Sequence[Request]:
    if len(ordered) <= most:
        return ordered
    longest = max(range(len(ordered)), key=lambda index: wait_s(ordered[index]))
    first = min(max(longest - most // 2, 0), len(ordered) - most)
    return ordered[first : first + most]


def _sessions(ordered: Sequence[Request]) -> list[tuple[str, list[Request]]]:
    rows: dict[int, list[Request]] = defaultdict(list)
    for request in ordered:
        rows[request.session].append(request)
    return [(str(session), rows[session]) for session in sorted(rows)]


def _places(ordered: Sequence[Request]) -> list[tuple[str, list[Request]]]:
    rows: list[list[Request]] = []
    for request in ordered:
        free = next((row for row in rows if row[-1].end_s <= request.sent_s), None)
        if free is None:
            rows.append([request])
        else:
            free.append(request)
    return [(str(index), row) for index, row in enumerate(rows)]


def _longest_lanes(rows: list[tuple[str, list[Request]]]) -> list[tuple[str, list[Request]]]:
    if len(rows) <= LANES:
        return rows
    order = sorted(range(len(rows)), key=lambda index: max(map(wait_s, rows[index][1])), reverse=True)
    return [rows[index] for index in sorted(order[:LANES])]
