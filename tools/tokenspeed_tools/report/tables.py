"""The tables of the page, as HTML.

Every table says what it shows in its caption, has heads with a scope, and scrolls by itself where the screen is
narrow. Knows how a table looks, not what its figures mean.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tokenspeed_tools.bench.summary import quantile, ttfts_s
from tokenspeed_tools.report.compare import Cell, Measure, comparison
from tokenspeed_tools.report.markup import Markup, element, joined
from tokenspeed_tools.report.measure import count, figure, moment
from tokenspeed_tools.report.settings import Setting
from tokenspeed_tools.report.shown import Shown

ACROSS = 4  # with more runs, a run is a row
TURNS = 100


def table(
    caption: str, heads: Sequence[object], rows: Iterable[Sequence[object]], kind: str, first: object = ""
) -> Markup:
    """Return a table; the first cell of a row is its head, cells that are `<td>` already stay as they are."""
    corner = element("td", first) if first == "" else element("th", first, scope="col")
    top = element("tr", corner, *(element("th", head, scope="col") for head in heads))
    body = (element("tr", element("th", row[0], scope="row"), *map(_cell, row[1:])) for row in rows)
    whole = element("table", element("caption", caption), element("thead", top), element("tbody", *body), class_=kind)
    return element("div", whole, class_="scroll", tabindex="0", role="region", aria_label=caption)


def _cell(content: object) -> Markup:
    done = isinstance(content, Markup) and content.startswith("<td")
    return content if done and isinstance(content, Markup) else element("td", content)


def headed(run: Shown) -> Markup:
    """Return the head of a run: its marker, its name and how many requests it had."""
    key = element("svg", run.style.marker(8.0, 8.0), class_="chart key", viewBox="0 0 16 16", aria_hidden="true")
    had = run.summary.requests
    said = f"{had.ok:,} ok, {had.failed:,} failed"
    if had.interrupted:
        said += f", {had.interrupted:,} interrupted"
    bad = had.failed or had.interrupted
    return joined(key, run.name, element("small", said, class_="warn" if bad else None))


def comparison_table(runs: Sequence[Shown]) -> Markup:
    """Return the figures of each run."""
    found = comparison(runs)
    names = [_measure(measure) for measure, _ in found]
    cells = [[_figure(cell) for cell in row] for _, row in found]
    caption = f"Ratios are to the first run, {runs[0].name}." if len(runs) > 1 else "One run: nothing to compare with."
    return _either_way(caption, names, [headed(run) for run in runs], cells, "numbers")


def _either_way(
    caption: str, names: Sequence[object], heads: Sequence[object], cells: Sequence[Sequence[object]], kind: str
) -> Markup:
    """Return `cells[name][run]` with runs as columns, or as rows where there are many."""
    if len(heads) <= ACROSS:
        return table(caption, heads, ([name, *row] for name, row in zip(names, cells, strict=True)), kind)
    return table(caption, names, ([head, *(row[run] for row in cells)] for run, head in enumerate(heads)), kind)


def _measure(measure: Measure) -> Markup:
    return joined(measure.name, element("small", measure.unit))


def _figure(cell: Cell) -> Markup:
    star = joined(element("span", "★ ", aria_hidden="true"), element("span", "best: ", class_="hidden"))
    word = cell.against.rpartition(" ")[2]
    ratio = element("small", cell.against, class_=word if word in ("better", "worse") else None) if cell.against else ""
    return element("td", star if cell.best else "", cell.text, ratio, class_="best" if cell.best else None)


def settings_table(found: Sequence[Setting], runs: Sequence[Shown], caption: str) -> Markup:
    """Return settings with the value of each run; one column where all are equal."""
    if any(setting.differs for setting in found):
        heads = [run.name for run in runs]
        return table(caption, heads, ([item.name, *item.values] for item in found), "settings", "setting")
    return table(caption, ["value"], ([item.name, item.values[0]] for item in found), "settings", "setting")


def runs_table(runs: Sequence[Shown]) -> Markup:
    """Return when, where and by which command each run was made."""
    said = [_made(run) for run in runs]
    cells = [[each[name] for each in said] for name in said[0]]
    return _either_way(
        "When, where and how each run was made.", list(said[0]), [run.name for run in runs], cells, "settings"
    )


def _made(run: Shown) -> dict[str, object]:
    head = run.run
    return {
        "started (UTC)": moment(head.started_at),
        "lasted": f"{figure(run.summary.duration_s)} s",
        "server": joined(head.target.server, element("small", head.target.url)),
        "model": head.target.model,
        "client's machine": f"{head.client.machine}, {count(head.client.cores, 'core')}",
        "warm-up": f"{count(head.warmup.requests, 'request')}: {head.warmup.how}",
        "raw file": run.file,
        "command": element("code", " ".join(head.command)),
    }


def turns_table(runs: Sequence[Shown]) -> Markup | None:
    """Return TTFT and cached share of each turn; None when no run has a second turn."""
    turns = sorted({turn for run in runs for turn in run.turns})
    if len(turns) < 2:
        return None
    left = f" The first {TURNS} of {len(turns)} turns." if len(turns) > TURNS else ""
    caption = f"Time to first token by turn in ms: p50 / p99 (of few requests, nearly the largest).{left}"
    rows = ([f"turn {turn}", *(_turn(run, turn) for run in runs)] for turn in turns[:TURNS])
    return table(caption, [run.name for run in runs], rows, "numbers")


def _turn(run: Shown, turn: int) -> Markup:
    requests = run.turns.get(turn, [])
    waits = sorted(1e3 * wait for wait in ttfts_s(requests))
    if not waits:
        return element("td", "–")
    known = [request for request in requests if request.cached_tokens is not None and request.prompt_tokens]
    prompt = sum(request.prompt_tokens or 0 for request in known)
    share = f", {100 * sum(request.cached_tokens or 0 for request in known) / prompt:.0f}% cached" if prompt else ""
    said = f"{figure(quantile(waits, 0.5))} / {figure(quantile(waits, 0.99))}"
    return element("td", said, element("small", f"n {len(waits):,}{share}"))
