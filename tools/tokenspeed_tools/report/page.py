"""The page: one HTML file that needs nothing else, neither script nor network.

Owns the order of its parts. A policy in its head forbids every script and every load, so even a mistake here could
not make a name from a raw file run.

Invariant: all that comes from a file passes `element`, which escapes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

from tokenspeed_tools.report import tables
from tokenspeed_tools.report.distributions import itl, ttft
from tokenspeed_tools.report.figure import Figure
from tokenspeed_tools.report.markup import Markup, element, joined
from tokenspeed_tools.report.measure import count, moment
from tokenspeed_tools.report.pareto import pareto
from tokenspeed_tools.report.settings import settings
from tokenspeed_tools.report.shown import Shown
from tokenspeed_tools.report.style import page_style
from tokenspeed_tools.report.throughput import tokens_per_second
from tokenspeed_tools.report.timeline import timeline
from tokenspeed_tools.report.turns import ttft_by_turn
from tokenspeed_tools.report.warnings import between, warnings
from tokenspeed_tools.report.words import DEFINITIONS

POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
NAMED = 3  # runs that the title names
BARS, BARS_LEAST = 1500, 100  # of all timelines together, and of one
TIMELINES = 8


def figures(runs: Sequence[Shown]) -> list[Figure]:
    """Return the plots that the runs have something for."""
    bars = max(BARS // min(len(runs), TIMELINES), BARS_LEAST)
    timelines = (timeline(run, bars) for run in runs[:TIMELINES])
    each = pareto(runs), ttft(runs), itl(runs), ttft_by_turn(runs), tokens_per_second(runs), *timelines
    return list(chain.from_iterable(each))


def page(runs: Sequence[Shown], drawn: Sequence[Figure]) -> str:
    """Return the whole document."""
    parts = dict(_sections(runs, drawn))
    links = (element("li", element("a", title, href=f"#{name}")) for name, (title, _) in parts.items())
    body = joined(
        element("header", element("h1", title_of(runs)), element("p", _about(runs), class_="soft")),
        element("main", *(_section(name, title, content) for name, (title, content) in parts.items())),
    )
    head = joined(
        Markup('<meta charset="utf-8"/><meta name="viewport" content="width=device-width,initial-scale=1"/>'),
        Markup(f'<meta http-equiv="Content-Security-Policy" content="{POLICY}"/>'),
        element("title", title_of(runs)),
        element("style", Markup(page_style())),
    )
    menu = element("nav", element("ul", *links), aria_label="Parts of this page")
    whole = element("html", element("head", head), element("body", menu, body), lang="en")
    return f"<!doctype html>\n{whole}\n"


def title_of(runs: Sequence[Shown]) -> str:
    """Return the title: the runs by name, or how many there are and of what."""
    if len(runs) <= NAMED:
        return f"Benchmark: {' against '.join(run.name for run in runs)}"
    return f"Benchmark: {len(runs)} runs of {' and '.join(dict.fromkeys(run.engine for run in runs))}"


def _about(runs: Sequence[Shown]) -> Markup:
    def each(values: Iterator[str]) -> str:
        return ", ".join(dict.fromkeys(values))

    days = sorted(moment(run.run.started_at) for run in runs)
    when = days[0] if days[0] == days[-1] else f"{days[0]} to {days[-1]}"
    machines = each(f"{run.run.client.machine}, {count(run.run.client.cores, 'core')}" for run in runs)
    return joined(
        f"{count(len(runs), 'run')} of ",
        element("code", f"tokenspeed bench {each(run.run.mode for run in runs)}"),
        f", started {when} UTC. Server: {each(run.run.target.server for run in runs)}; "
        f"model: {each(run.run.target.model for run in runs)}. Measured from {machines}.",
    )


def _sections(runs: Sequence[Shown], drawn: Sequence[Figure]) -> Iterator[tuple[str, tuple[str, Markup]]]:
    doubts = list(_doubts(runs))
    found = sum(len(said) for _, said in doubts)
    link = element("a", f"{count(found, 'warning')} about these figures", href="#warnings")
    warned = element("p", link, class_="warn") if found else ""
    yield "comparison", ("Comparison", joined(tables.comparison_table(runs), warned))
    yield "plots", ("Plots", _plots(runs, drawn))
    yield "settings", ("Settings", _settings(runs))
    if turns := tables.turns_table(runs):
        yield "turns", ("Turns", turns)
    terms = (joined(element("dt", term), element("dd", said)) for term, said in DEFINITIONS)
    yield "definitions", ("How each figure is made", element("dl", *terms))
    yield "warnings", ("Warnings", _warnings(doubts))


def _section(name: str, title: str, content: Markup) -> Markup:
    return element(
        "section", element("h2", title, id=f"{name}-title"), content, id=name, aria_labelledby=f"{name}-title"
    )


def _plots(runs: Sequence[Shown], drawn: Sequence[Figure]) -> Markup:
    left = f"Timelines of the first {TIMELINES} runs only." if len(runs) > TIMELINES else ""
    return joined(
        element("div", *map(_figure, drawn), class_="plots"), element("p", left, class_="soft") if left else ""
    )


def _figure(drawn: Figure) -> Markup:
    wide, narrow = drawn.draw(drawn.size, "", "wide"), drawn.draw(drawn.narrow, "", "narrow")
    caption = element("figcaption", drawn.caption)
    return element("figure", element("h3", drawn.title), wide, narrow, caption, class_="full" if drawn.full else None)


def _settings(runs: Sequence[Shown]) -> Markup:
    found = settings([run.run for run in runs])
    differing = [setting for setting in found if setting.differs]
    equal = [setting for setting in found if not setting.differs]
    if differing:
        said = tables.settings_table(
            differing, runs, f"{count(len(differing), 'setting')} that differ between the runs."
        )
    else:
        said = element("p", "No setting differs." if len(runs) > 1 else "One run: no setting can differ.")
    folded = element(
        "details",
        element("summary", f"{count(len(equal), 'setting')} equal in all runs"),
        tables.settings_table(equal, runs, "Equal in all runs."),
    )
    return joined(said, folded, tables.runs_table(runs))


def _doubts(runs: Sequence[Shown]) -> Iterator[tuple[str, list[str]]]:
    if said := between(runs):
        yield "All runs together", said
    yield from ((run.name, said) for run in runs if (said := warnings(run)))


def _warnings(doubts: Sequence[tuple[str, list[str]]]) -> Markup:
    if not doubts:
        return element("p", "None.")
    return joined(
        *(joined(element("h3", name), element("ul", *(element("li", text) for text in said))) for name, said in doubts)
    )
