"""Plot of the output tokens per second while the runs went on."""

from __future__ import annotations

from collections.abc import Sequence

from tokenspeed_tools.report.chart import Axis, Chart, Key, Size
from tokenspeed_tools.report.figure import Figure
from tokenspeed_tools.report.markup import Markup
from tokenspeed_tools.report.measure import short
from tokenspeed_tools.report.scale import room_above
from tokenspeed_tools.report.shown import Shown
from tokenspeed_tools.report.stats import Point, bin_width, rates

PIECES = 60


def span(run: Shown) -> tuple[float, float]:
    """Return seconds of the first request sent and of the last one's end, of those that count."""
    return min(request.sent_s for request in run.counted), max(request.end_s for request in run.counted)


def tokens_per_second(runs: Sequence[Shown]) -> Figure | None:
    """Return the plot; None when nothing was sent."""
    spans = [(run, *span(run)) for run in runs if run.counted]
    longest = max((end - start for _, start, end in spans), default=0.0)
    if longest <= 0:
        return None
    width_s = bin_width(longest, PIECES)
    lines: list[tuple[Shown, list[Point]]] = []
    for run, start, end in spans:
        arrivals = ((at, tokens) for request in run.counted for at, tokens in request.chunks)
        found = [(at - start, rate) for at, rate in rates(arrivals, start, end, width_s)]
        lines.append((run, [*found, (end - start, found[-1][1])]))
    top = room_above([rate for _, line in lines for _, rate in line])

    def draw(size: Size, style: str) -> Markup:
        axes = Axis("seconds since the first request that counts", 0, longest), Axis("output tokens per second", 0, top)
        chart = Chart(size, *axes, [Key(run.name, run.style) for run, _ in lines])
        for run, line in lines:
            chart.line(line, run.style, step=True)
        return chart.svg("Output tokens per second over time, all requests together.", style)

    caption = (
        f"All requests together, what failed ones had brought included, in pieces of {short(width_s)} s; "
        "what is left over at the end belongs to the last piece. Both axes start at zero."
    )
    return Figure("tokens-per-second", "Output over time", caption, Size(580, 340), draw)
