"""The Pareto plot of a sweep: what one user gets against what one GPU gives."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from tokenspeed_tools.report.chart import Chart
from tokenspeed_tools.report.figure import Figure
from tokenspeed_tools.report.markup import Markup
from tokenspeed_tools.report.measure import count, figure
from tokenspeed_tools.report.parts import Axis, Key, Size
from tokenspeed_tools.report.scale import room_above
from tokenspeed_tools.report.shown import Shown
from tokenspeed_tools.report.stats import pareto_front


class Spot(NamedTuple):
    """One run: tokens per second of the median user, output tokens per minute per GPU (or per engine)."""

    run: Shown
    user: float
    unit: float


def spots(runs: Sequence[Shown]) -> dict[str, list[Spot]]:
    """Return the runs of each engine that have both figures."""
    found: dict[str, list[Spot]] = defaultdict(list)
    for run in runs:
        user, gpu = run.summary.tps_per_user, run.summary.per_gpu
        if user is not None:
            found[run.engine].append(Spot(run, user, gpu.tpm_output if gpu else run.summary.tpm_output))
    return found


def unit_of(runs: Sequence[Shown]) -> str:
    """Return what the throughput is divided by, in words."""
    kinds = {run.run.gpus > 0 for run in runs}
    if kinds == {True}:
        return "per GPU"
    return "per engine" if kinds == {False} else "per GPU (per engine where there is none)"


def pareto(runs: Sequence[Shown]) -> list[Figure]:
    """Return the plot; none when no engine has two runs with both figures."""
    engines = spots(runs)
    all_spots = [spot for found in engines.values() for spot in found]
    if len(all_spots) == len(engines):
        return []
    unit = unit_of(runs)
    right, top = room_above([spot.user for spot in all_spots], 0.12), room_above([spot.unit for spot in all_spots], 0.1)

    def draw(size: Size, style: str, kind: str) -> Markup:
        x = Axis("output tokens per second per user, median", 0, right)
        y = Axis(f"output tokens per minute {unit}", 0, top)
        chart = Chart(
            size, x, y, [Key(name, found[0].run.engine_style, marker=True) for name, found in engines.items()]
        )
        for found in engines.values():
            _engine(chart, found)
        return chart.svg(f"Output tokens per minute {unit} against tokens per second per user.", style, kind)

    caption = (
        "Up and to the right is better. One point for each run, labelled with how many were served at once; the line "
        "joins an engine's best points, hollow ones are beaten in both by another of the same engine. Both axes start "
        "at zero."
    )
    return [Figure("pareto", "Throughput against speed for one user", caption, Size(1000, 460), draw, full=True)]


def _engine(chart: Chart, found: Sequence[Spot]) -> None:
    points = [(spot.user, spot.unit) for spot in found]
    front = pareto_front(points)
    if len(front) > 1:
        chart.line([points[index] for index in front], found[0].run.engine_style, avoided=True)
    for index, spot in enumerate(found):
        requests = spot.run.summary.requests
        said = (
            f"{spot.run.name}: {figure(spot.user)} tokens/s per user, {figure(spot.unit)} tokens/min, "
            f"{count(requests.ok, 'request')}, {requests.failed} failed"
        )
        chart.marker(points[index], spot.run.engine_style, said, hollow=index not in front, label=spot.run.load)
