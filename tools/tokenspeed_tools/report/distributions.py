"""Plots of whole distributions: every value of every run, none left out, so that no mean can hide a tail."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tokenspeed_tools.report.chart import Axis, Chart, Key, Size
from tokenspeed_tools.report.figure import Figure
from tokenspeed_tools.report.markup import Markup
from tokenspeed_tools.report.measure import figure
from tokenspeed_tools.report.samples import itl_ms, quantile, ttft_ms
from tokenspeed_tools.report.scale import log_range
from tokenspeed_tools.report.shown import Shown
from tokenspeed_tools.report.stats import STEPS, TAIL, ecdf

LABELLED = 4  # with more runs, p50 and p99 are said by their markers only
MARKED = ((0.5, "p50"), (0.99, "p99"))


def ttft(runs: Sequence[Shown]) -> Figure | None:
    """Return the plot of the times to the first token."""
    return _plot("ttft", "Time to first token", "requests", runs, lambda run: ttft_ms(run.ok))


def itl(runs: Sequence[Shown]) -> Figure | None:
    """Return the plot of the times between tokens."""
    return _plot("itl", "Inter-token latency", "gaps", runs, lambda run: itl_ms(run.ok))


def _plot(
    name: str, title: str, what: str, runs: Sequence[Shown], values_of: Callable[[Shown], list[float]]
) -> Figure | None:
    drawn = [(run, sorted(values)) for run in runs if (values := values_of(run))]
    if not drawn:
        return None
    low, high = log_range([value for _, values in drawn for value in (values[0], values[-1])])

    def draw(size: Size, style: str) -> Markup:
        x = Axis(f"{title.lower()}, ms, logarithmic", low, high, log=True)
        y = Axis(f"share of {what} at most this long, %", 0, 100)
        chart = Chart(size, x, y, [Key(run.name, run.style) for run, _ in drawn])
        for share, _ in MARKED:
            chart.rule(y=100 * share)
        for run, values in drawn:
            points = ecdf(values)
            chart.line([(points[0][0], 0.0), *((at, 100 * share) for at, share in points)], run.style, step=True)
        for run, values in drawn:
            for share, quantile_name in MARKED:
                at = quantile(values, share)
                label = f"{quantile_name} {figure(at)}" if len(drawn) <= LABELLED else ""
                said = f"{run.name}: {quantile_name} {figure(at)} ms, n {len(values):,}"
                chart.marker((at, 100 * share), run.style, said, label=label)
        return chart.svg(f"Distribution of {title.lower()}; p50 and p99 of each run are in the first table.", style)

    counts = "; ".join(f"{run.name}: n {len(values):,}, largest {figure(values[-1])} ms" for run, values in drawn)
    thinned = f" Drawn with {STEPS:,} steps and the {TAIL} largest." if any(len(v) > STEPS for _, v in drawn) else ""
    caption = f"Markers: p50 and p99. The further left, the better. {counts}.{thinned}"
    return Figure(name, title, caption, Size(580, 340), draw)
