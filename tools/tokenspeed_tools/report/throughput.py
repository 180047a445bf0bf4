"""Plot of the output tokens per second while the runs went on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tokenspeed_tools.report.chart import Chart
from tokenspeed_tools.report.figure import Figure
from tokenspeed_tools.report.markup import Markup
from tokenspeed_tools.report.measure import short
from tokenspeed_tools.report.panels import Panel, panels
from tokenspeed_tools.report.parts import Axis, Key, Size
from tokenspeed_tools.report.scale import room_above
from tokenspeed_tools.report.shown import Shown
from tokenspeed_tools.report.stats import Point, bin_width, rates

PIECES = 60


def span(run: Shown) -> tuple[float, float]:
    """Return seconds of the first request sent and of the last one's end, of those that count."""
    return min(request.sent_s for request in run.counted), max(request.end_s for request in run.counted)


def tokens_per_second(runs: Sequence[Shown]) -> list[Figure]:
    """Return the plots; none when nothing was sent."""
    spans = {run.name: span(run) for run in runs if run.counted}
    longest = max((end - start for start, end in spans.values()), default=0.0)
    if longest <= 0:
        return []
    width_s = bin_width(longest, PIECES)
    lines = {run.name: _line(run, *spans[run.name], width_s) for run in runs if run.name in spans}
    top = room_above([rate for line in lines.values() for _, rate in line])
    axes = Axis("seconds since the first request that counts", 0, longest), Axis("output tokens per second", 0, top)
    return [_panel(panel, axes, lines, width_s) for panel in panels(runs)]


def _line(run: Shown, start_s: float, end_s: float, width_s: float) -> list[Point]:
    arrivals = ((at, tokens) for request in run.counted for at, tokens in request.chunks)
    found = [(at - start_s, rate) for at, rate in rates(arrivals, start_s, end_s, width_s)]
    return [*found, (end_s - start_s, found[-1][1])]


def _panel(panel: Panel, axes: tuple[Axis, Axis], lines: Mapping[str, list[Point]], width_s: float) -> Figure:
    drawn = [run for run in panel.runs if run.name in lines]

    def draw(size: Size, style: str, kind: str) -> Markup:
        chart = Chart(size, *axes, [Key(run.name, run.style) for run in drawn])
        for run in drawn:
            chart.line(lines[run.name], run.style, step=True)
        return chart.svg("Output tokens per second over time, all requests together.", style, kind)

    caption = (
        f"All requests together, what failed ones had brought included, in pieces of {short(width_s)} s; "
        "what is left over at the end belongs to the last piece. Both axes start at zero."
    )
    return Figure(f"tokens-per-second{panel.file}", f"Output over time{panel.title}", caption, Size(580, 340), draw)
