"""Plots of what each turn of a session waited for its first token."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tokenspeed_tools.bench.summary import quantile, ttfts_s
from tokenspeed_tools.report.chart import Chart
from tokenspeed_tools.report.figure import Figure
from tokenspeed_tools.report.markup import Markup
from tokenspeed_tools.report.measure import figure
from tokenspeed_tools.report.panels import Panel, panels
from tokenspeed_tools.report.parts import Axis, Key, Size
from tokenspeed_tools.report.scale import room_above
from tokenspeed_tools.report.shown import Shown

MARKERS = 60  # turns; with more, the line says it all
BANDS = 3  # more runs than this, and their bands would cover each other


class Turn(NamedTuple):
    """How many requests one turn had, and quantiles of their TTFT in ms."""

    turn: int
    requests: int
    p10: float
    p50: float
    p90: float


def by_turn(run: Shown) -> list[Turn]:
    """Return the turns that have a first token, rising."""
    found = []
    for turn, requests in run.turns.items():
        if waits := sorted(1e3 * wait for wait in ttfts_s(requests)):
            found.append(Turn(turn, len(waits), *(quantile(waits, share) for share in (0.1, 0.5, 0.9))))
    return found


def ttft_by_turn(runs: Sequence[Shown]) -> list[Figure]:
    """Return the plots; none when no run has a second turn."""
    lines = {run.name: by_turn(run) for run in runs}
    last = max((line[-1].turn for line in lines.values() if line), default=0)
    if last < 1:
        return []
    top = room_above([entry.p90 for line in lines.values() for entry in line])
    axes = Axis("turn (the first is 0)", -0.2, last + 0.2, whole=True), Axis("time to first token, ms", 0, top)
    return [_panel(panel, axes, lines) for panel in panels(runs)]


def _panel(panel: Panel, axes: tuple[Axis, Axis], lines: Mapping[str, list[Turn]]) -> Figure:
    drawn = [run for run in panel.runs if lines[run.name]]
    banded = len(drawn) <= BANDS

    def draw(size: Size, style: str, kind: str) -> Markup:
        chart = Chart(size, *axes, [Key(run.name, run.style, marker=True) for run in drawn])
        for run in drawn if banded else ():
            line = lines[run.name]
            chart.band([(at.turn, at.p10) for at in line], [(at.turn, at.p90) for at in line], run.style)
        for run in drawn:
            _line(chart, run, lines[run.name])
        return chart.svg("Time to first token by turn; the table of turns below has the numbers.", style, kind)

    band = "the band is p10 to p90" if banded else f"no bands with more than {BANDS} runs; point at a marker for them"
    caption = f"Line: median over the sessions; {band}. The upward axis starts at zero."
    title = f"Time to first token by turn{panel.title}"
    return Figure(f"ttft-by-turn{panel.file}", title, caption, Size(580, 340), draw)


def _line(chart: Chart, run: Shown, line: Sequence[Turn]) -> None:
    chart.line([(at.turn, at.p50) for at in line], run.style)
    for at in line if len(line) <= MARKERS else ():
        spread = f"median {figure(at.p50)} ms, p10 {figure(at.p10)}, p90 {figure(at.p90)}, n {at.requests}"
        chart.marker((at.turn, at.p50), run.style, f"{run.name}, turn {at.turn}: {spread}")
