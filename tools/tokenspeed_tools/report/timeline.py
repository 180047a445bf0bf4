"""The timeline of one run: each request a bar, pale until its first token, full while tokens come.

Pauses within a reply that are far above the usual one are cut out of the bar, so that a stall of the server shows
as a gap at the same time in every lane. Knows no other run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from tokenspeed_tools.bench.raw import Request
from tokenspeed_tools.bench.summary import gaps_s, quantile
from tokenspeed_tools.report.chart import Chart
from tokenspeed_tools.report.figure import Figure
from tokenspeed_tools.report.lanes import lanes
from tokenspeed_tools.report.markup import Markup, element, number
from tokenspeed_tools.report.measure import figure, fitted
from tokenspeed_tools.report.parts import Axis, Key, Size
from tokenspeed_tools.report.shown import Shown

STALL = 5.0  # times the run's median pause between pieces
NARROWEST = 1.0  # pixels of a pause that is cut out
LANE, FILLED = 15.0, 0.7  # pixels of a lane, and the share of it that a bar takes


def timeline(run: Shown, most: int) -> list[Figure]:
    """Return the timeline with at most `most` bars; none when nothing was sent."""
    if not run.counted:
        return []
    shown = lanes(run.counted, most)
    requests = [request for _, row in shown.rows for request in row]
    start_s, end_s = min(request.sent_s for request in requests), max(request.end_s for request in requests)
    stall_s = STALL * _usual_gap_s(run.ok)
    total = len(shown.rows)
    heights = {total - index - 0.5: name for index, (name, _) in enumerate(shown.rows)}

    def draw(size: Size, style: str, kind: str) -> Markup:
        x = Axis("seconds since the start of the run", start_s, max(end_s, start_s + 1e-3))
        y = Axis(shown.what, 0, total, write=heights.__getitem__, at=tuple(heights))
        chart = Chart(size, x, y, [Key(run.name, run.style, marker=True)])
        for height, (_, row) in zip(heights, shown.rows, strict=True):
            for request in row:
                tooltip = "" if size.small else element("title", _told(request))
                parts = _bar(chart, request, height, stall_s)
                chart.add(element("g", tooltip, *parts, class_=run.style.colour))
        return chart.svg(f"Timeline of {run.name}: when each request waited and when its tokens came.", style, kind)

    caption = (
        f"One lane for each {shown.what}. Pale: from sending to the first token, queue and prefill. Full: tokens come. "
        f"Cut out: pauses above {figure(1e3 * stall_s)} ms, {STALL:g} times the median between pieces. "
        f"Crossed: failed. The warm-up is left out, so time need not begin at zero. {shown.note}"
    )
    size = Size(1000, 66 + LANE * max(total, 3))
    return [
        Figure(f"timeline-{run.style.index + 1}", f"Timeline of {run.name}", caption.strip(), size, draw, full=True)
    ]


def _usual_gap_s(requests: Sequence[Request]) -> float:
    gaps = sorted(gap for request in requests for gap in gaps_s(request))
    return quantile(gaps, 0.5) if gaps else 0.0


def _told(request: Request) -> str:
    said = [f"request {request.index}, session {request.session}, turn {request.turn}"]
    if request.first_token_s is not None:
        said.append(f"first token after {figure(1e3 * (request.first_token_s - request.sent_s))} ms")
    said.append(f"{request.output_tokens} tokens in {figure(request.end_s - request.sent_s)} s")
    if gaps := gaps_s(request):
        said.append(f"longest pause {figure(1e3 * max(gaps))} ms")
    if request.error is not None:
        said.append(f"failed: {fitted(request.error, 1, 120)}")
    return "; ".join(said)


def _bar(chart: Chart, request: Request, height: float, stall_s: float) -> Iterator[Markup]:
    """Yield the parts of a request's bar."""
    top, bottom = chart.y(height + FILLED / 2), chart.y(height - FILLED / 2)
    first = request.first_token_s if request.first_token_s is not None else request.end_s
    yield element("path", d=_block(chart.x(request.sent_s), chart.x(first), top, bottom), class_="wait")
    if pieces := list(_pieces(chart, request, stall_s)):
        yield element("path", d="".join(_block(*ends, top, bottom) for ends in pieces), class_="run")
    if request.error is not None:
        x, reach = chart.x(request.end_s), (bottom - top) / 2
        corners = f"M{number(x - reach)} {number(top)}l{number(2 * reach)} {number(2 * reach)}m0 {number(-2 * reach)}"
        yield element("path", d=f"{corners}l{number(-2 * reach)} {number(2 * reach)}", class_="line")


def _pieces(chart: Chart, request: Request, stall_s: float) -> Iterator[tuple[float, float]]:
    """Yield the ends, in pixels, of each stretch of the reply without a stall."""
    if request.first_token_s is None:
        return
    begin = chart.x(request.first_token_s)
    for (before_s, _), (after_s, _) in pairwise(request.chunks):
        if after_s - before_s > stall_s and chart.x(after_s) - chart.x(before_s) > NARROWEST:
            yield begin, chart.x(before_s)
            begin = chart.x(after_s)
    yield begin, chart.x(request.end_s)


def _block(left: float, right: float, top: float, bottom: float) -> str:
    """Return the `d` of a rectangle, at least half a pixel wide."""
    return f"M{number(left)} {number(top)}h{number(max(right - left, 0.5))}v{number(bottom - top)}H{number(left)}z"
