"""Plots of whole distributions: every value of every run, none left out, so that no mean can hide a tail."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from tokenspeed_tools.bench.raw import Request
from tokenspeed_tools.bench.summary import itls_s, quantile, ttfts_s
from tokenspeed_tools.report.chart import Chart
from tokenspeed_tools.report.figure import Figure
from tokenspeed_tools.report.markup import Markup
from tokenspeed_tools.report.measure import figure
from tokenspeed_tools.report.panels import panels
from tokenspeed_tools.report.parts import Axis, Key, Size
from tokenspeed_tools.report.scale import log_range
from tokenspeed_tools.report.shown import Shown
from tokenspeed_tools.report.stats import STEPS, TAIL, Point, ecdf

LABELLED = 4  # with more runs, p50 and p99 are said by their markers only
MARKED = (("p50", 0.5), ("p99", 0.99))


class Spread(NamedTuple):
    """One run's values in ms: steps of its distribution, the marked quantiles, how many and the largest."""

    run: Shown
    steps: list[Point]
    marks: list[tuple[str, float, float]]
    values: int
    largest: float


def ttft(runs: Sequence[Shown]) -> list[Figure]:
    """Return the plots of the times to the first token."""
    return _plots("ttft", "Time to first token", "requests", runs, ttfts_s)


def itl(runs: Sequence[Shown]) -> list[Figure]:
    """Return the plots of the times between tokens."""
    return _plots("itl", "Inter-token latency", "tokens", runs, _itls_s)


def _itls_s(requests: Iterable[Request]) -> Iterator[float]:
    return (value for request in requests for value in itls_s(request))


def _spread(run: Shown, values_s: Iterable[float]) -> Spread | None:
    ordered = sorted(1e3 * value for value in values_s)
    if not ordered:
        return None
    marks = [(name, share, quantile(ordered, share)) for name, share in MARKED]
    return Spread(run, ecdf(ordered), marks, len(ordered), ordered[-1])


def _plots(
    name: str,
    title: str,
    what: str,
    runs: Sequence[Shown],
    values_s: Callable[[Iterable[Request]], Iterable[float]],
) -> list[Figure]:
    spreads = {run.name: spread for run in runs if (spread := _spread(run, values_s(run.ok)))}
    if not spreads:
        return []
    low, high = log_range([at for spread in spreads.values() for at, _ in (spread.steps[0], spread.steps[-1])])
    axes = (
        Axis(f"{title.lower()}, ms, logarithmic", low, high, log=True),
        Axis(f"share of {what} at most this long, %", 0, 100),
    )
    return [
        _panel(name + panel.file, title + panel.title, axes, drawn)
        for panel in panels(runs)
        if (drawn := [spreads[run.name] for run in panel.runs if run.name in spreads])
    ]


def _panel(name: str, title: str, axes: tuple[Axis, Axis], drawn: Sequence[Spread]) -> Figure:
    def draw(size: Size, style: str, kind: str) -> Markup:
        chart = Chart(size, *axes, [Key(spread.run.name, spread.run.style) for spread in drawn])
        for _, share in MARKED:
            chart.rule(y=100 * share)
        for spread in drawn:
            _steps(chart, spread)
        for spread in drawn:
            _marks(chart, spread, labelled=len(drawn) <= LABELLED)
        return chart.svg(f"Distribution of {title}; p50 and p99 of each run are in the first table.", style, kind)

    counts = "; ".join(f"{run.name}: n {n:,}, largest {figure(largest)} ms" for run, _, _, n, largest in drawn)
    thinned = f" Drawn with {STEPS:,} steps and the {TAIL} largest." if any(s.values > STEPS for s in drawn) else ""
    caption = f"Markers: p50 and p99. The further left, the better. {counts}.{thinned}"
    return Figure(name, title, caption, Size(580, 340), draw)


def _steps(chart: Chart, spread: Spread) -> None:
    points = [(spread.steps[0][0], 0.0), *((at, 100 * share) for at, share in spread.steps)]
    chart.line(points, spread.run.style, step=True, avoided=True)


def _marks(chart: Chart, spread: Spread, labelled: bool) -> None:
    for name, share, at in spread.marks:
        said = f"{spread.run.name}: {name} {figure(at)} ms, n {spread.values:,}"
        chart.marker((at, 100 * share), spread.run.style, said, label=f"{name} {figure(at)}" if labelled else "")
