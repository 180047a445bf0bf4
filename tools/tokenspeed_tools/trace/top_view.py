"""A snapshot as lines of text, for a terminal of any size from 80 columns on, or as one line for a log.

Owns layout and figures. It knows neither terminals nor where the numbers come from.

Invariant: a frame has at most the lines asked for, none longer than the width.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from itertools import zip_longest
from typing import NamedTuple

from tokenspeed.cli.screen import amount
from tokenspeed_tools.trace.live import Ring, Snapshot
from tokenspeed_tools.trace.shares import IDLE

WIDTH_MIN, HEIGHT_MIN = 80, 24
LEFT = 40  # columns of the left half
BAR = 14
EIGHTHS = " ▏▎▍▌▋▊▉"
SHARE_SHOWN = 0.0005
FIXED_LINES = 11  # all but the table in the middle
PAGES = {
    "pages_owned": "owned",
    "pages_cached_leased": "leased",
    "pages_cached_idle": "cached",
    "pages_zombie": "zombie",
    "pages_free": "free",
}


class Style(Enum):
    """How a line looks."""

    PLAIN = ""
    BOLD = "\x1b[1m"
    DIM = "\x1b[2m"
    HEAD = "\x1b[7m"


class Line(NamedTuple):
    """A line of a frame."""

    text: str
    style: Style = Style.PLAIN


def frame(now: Snapshot, title: str, clock: str, width: int, height: int) -> list[Line]:
    """Return the lines of a screen of `width` columns and `height` lines, filled from above."""
    width, height = max(width, WIDTH_MIN), max(height, HEIGHT_MIN)
    rows = height - FIXED_LINES
    lines = [
        Line(f" {title:<{width - len(clock) - 2}}{clock} ", Style.HEAD),
        Line(""),
        *map(Line, _figures(now)),
        Line(f" pages       {_pages(now.pages)}"),
        Line(""),
        Line(f" {'where the time went':<{LEFT - 1}} {'rings':<24}{'per s':>7}{'fill':>8}", Style.BOLD),
        *(Line(f"{left:<{LEFT}} {right}") for left, right in _table(now, rows)),
        Line(""),
        Line(_busy(now.busy)),
        Line(_foot(now), Style.BOLD if now.lost or any(now.restarts.values()) else Style.DIM),
    ]
    return [line._replace(text=line.text[:width]) for line in lines[:height]]


def log_line(now: Snapshot) -> str:
    """Return the state in one line."""
    last = now.ttft_ms[-1] if now.ttft_ms else None
    computing = sum(share for name, share in now.shares.items() if name.startswith("compute"))
    return (
        f"steps/s {now.steps_per_s:.1f} tokens/s {now.tokens_per_s:.1f} running {now.running} "
        f"waiting {now.waiting} itl_ms p50 {_ms(now.itl_ms_p50)} p99 {_ms(now.itl_ms_p99)} ttft_ms {_ms(last)} "
        f"compute {_percent(computing)} idle {_percent(now.shares.get(IDLE, 0.0))} lost {now.lost} "
        f"restarts {sum(now.restarts.values())}"
    )


def _figures(now: Snapshot) -> Iterator[str]:
    """Yield three lines of figures in four columns."""
    ttft = [f"{_ms(ms):>7}" for ms in reversed(now.ttft_ms)] or [f"{'-':>7}"]
    rows = (
        (f"steps/s  {now.steps_per_s:>8.1f}", f"running   {now.running:>7,}", f"ITL p50 ms {_ms(now.itl_ms_p50):>7}"),
        (f"tokens/s {now.tokens_per_s:>8.1f}", f"waiting   {now.waiting:>7,}", f"ITL p99 ms {_ms(now.itl_ms_p99):>7}"),
        (f"prompt/s {now.prompt_tokens_per_s:>8,.0f}", f"cache hits {_percent(now.hit_share):>6}", ""),
    )
    heads = ("TTFT ms", "", "")
    for row, head, own in zip(rows, heads, (ttft[:2], ttft[2:4], ttft[4:6]), strict=True):
        yield f" {row[0]:<17}  {row[1]:<17}  {row[2]:<18}  {head:<7}{''.join(own)}"


def _pages(pages: Mapping[str, int] | None) -> str:
    if pages is None:
        return "-"
    total = max(1, pages.get("pages_total", 0))
    return f"{total:,}:  " + "  ".join(f"{label} {pages.get(name, 0):,}" for name, label in PAGES.items())


def _table(now: Snapshot, rows: int) -> Iterator[tuple[str, str]]:
    return zip_longest(_shares(now.shares, rows), _rings(now.rings, rows), fillvalue="")


def _shares(shares: Mapping[str, float], rows: int) -> Iterator[str]:
    """Yield the largest shares, in their order, and the others together."""
    shown = sorted(shares, key=lambda name: -shares[name])[: rows if len(shares) <= rows else rows - 1]
    told = {name: share for name, share in shares.items() if name in shown}
    if len(told) < len(shares):
        told["the rest"] = sum(shares.values()) - sum(told.values())
    for name, share in told.items():
        if share >= SHARE_SHOWN:
            yield f" {name:<16}{100 * share:>5.1f} % {bar(share, BAR)}"


def _rings(rings: Sequence[Ring], rows: int) -> Iterator[str]:
    """Yield the rings, the busiest of them if not all fit."""
    busiest = sorted(rings, key=lambda ring: -ring.messages_per_s)[:rows]
    for ring in rings:
        if ring in busiest:
            name = f"{ring.writer} to {ring.reader}"
            yield f"{name:<24}{ring.messages_per_s:>7.1f}{_fill(ring):>8}"


def _fill(ring: Ring) -> str:
    share = ring.fill_bytes / ring.capacity_bytes
    return _percent(share) if share >= 0.01 else amount(ring.fill_bytes, "B")


def _busy(busy: Mapping[str, float]) -> str:
    return " busy    " + "  ".join(f"{actor} {_percent(share)}" for actor, share in busy.items())


def _foot(now: Snapshot) -> str:
    restarts = ", ".join(f"{actor} {count}" for actor, count in now.restarts.items() if count) or "none"
    return f" restarts {restarts}   points lost {now.lost:,}   rates of 3 s, latencies of 10 s   q ends"


def bar(share: float, width: int) -> str:
    """Return a bar of `width` columns that is filled by `share`, in eighths of a column."""
    eighths = round(min(max(share, 0.0), 1.0) * width * 8)
    return ("█" * (eighths // 8) + EIGHTHS[eighths % 8]).rstrip()


def _ms(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.1f}" if value < 100 else f"{value:,.0f}"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.0f} %"
