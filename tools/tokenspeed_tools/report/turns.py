"""Plot and table of what each turn of a session waited for its first token."""

from __future__ import annotations

from collections.abc import Sequence

from tokenspeed_tools.report.chart import Axis, Chart, Key, Size
from tokenspeed_tools.report.figure import Figure
from tokenspeed_tools.report.markup import Markup
from tokenspeed_tools.report.measure import figure
from tokenspeed_tools.report.samples import quantile, ttft_ms
from tokenspeed_tools.report.scale import room_above
from tokenspeed_tools.report.shown import Shown

BANDS = 4  # more runs than this, and their bands would cover each other


def by_turn(run: Shown) -> list[tuple[int, int, float, float, float]]:
    """Return (turn, requests, p10, p50, p90) of the TTFT in ms."""
    found = []
    for turn, requests in run.turns.items():
        waits = sorted(ttft_ms(requests))
        if waits:
            found.append((turn, len(waits), quantile(waits, 0.1), quantile(waits, 0.5), quantile(waits, 0.9)))
    return found


def ttft_by_turn(runs: Sequence[Shown]) -> Figure | None:
    """Return the plot; None when no run has a second turn."""
    lines = [(run, by_turn(run)) for run in runs]
    if max((len(line) for _, line in lines), default=0) < 2:
        return None
    banded = len(runs) <= BANDS
    last = max(line[-1][0] for _, line in lines if line)
    top = room_above([entry[4] if banded else entry[3] for _, line in lines for entry in line])

    def draw(size: Size, style: str) -> Markup:
        axes = Axis("turn (the first is 0)", 0, last, whole=True), Axis("time to first token, ms", 0, top)
        chart = Chart(size, *axes, [Key(run.name, run.style, marker=True) for run, _ in lines])
        for run, line in lines:
            if banded and line:
                chart.band([(turn, low) for turn, _, low, _, _ in line], [(t, high) for t, _, _, _, high in line], run.style)
        for run, line in lines:
            if line:
                chart.line([(turn, middle) for turn, _, _, middle, _ in line], run.style)
            for turn, n, low, middle, high in line if len(line) <= 60 else ():
                said = f"{run.name}, turn {turn}: median {figure(middle)} ms, p10 {figure(low)}, p90 {figure(high)}, n {n}"
                chart.marker((turn, middle), run.style, said)
        return chart.svg("Time to first token by turn; the table of turns below has the numbers.", style)

    band = "the band is p10 to p90" if banded else f"no bands with more than {BANDS} runs; point at a marker for p10 and p90"
    return Figure("ttft-by-turn", "Time to first token by turn", f"Line: median over the sessions; {band}. Both axes start at zero.", Size(580, 340), draw)
