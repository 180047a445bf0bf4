"""What makes the page's figures doubtful, in sentences.

A run's own doubts come from its summary; added here is what only the whole file or all the runs together show.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from tokenspeed_tools.bench.raw import Request, Run
from tokenspeed_tools.report.measure import count, fitted
from tokenspeed_tools.report.settings import settings
from tokenspeed_tools.report.shown import Shown

FEW = 100  # values below which a p99 lies between the two largest
ERRORS = 3


def warnings(run: Shown) -> list[str]:
    """Return the doubts about one run."""
    return [*run.summary.warnings, *_errors(run), *_end(run), *_warmup(run), *_few(run)]


def _errors(run: Shown) -> Iterator[str]:
    common = sorted(run.summary.errors.items(), key=lambda entry: -entry[1])
    for text, times in common[:ERRORS]:
        yield f"{count(times, 'request')} ended with: {fitted(text, 1, 160)}"
    if len(common) > ERRORS:
        yield f"{count(len(common) - ERRORS, 'more kind')} of errors: see the raw file"


def _end(run: Shown) -> Iterator[str]:
    said = run.recorded.summary
    if said is None:
        yield "the file has no summary of this run: it was cut short, and requests then open are in no figure"
    elif said.requests != run.summary.requests or said.output_tokens != run.summary.output_tokens:
        yield "the summary in the file is not what its requests give; shown is what the requests give"


def _warmup(run: Shown) -> Iterator[str]:
    sent, declared = sum(request.warmup for request in run.recorded.requests), run.run.warmup.requests
    if sent != declared:
        yield f"warm-up: {declared} requests were declared and {sent} sent"
    elif not sent:
        yield "no warm-up: the first requests may pay for what later ones find ready"


def _few(run: Shown) -> Iterator[str]:
    waits = sum(_answered(request) for request in run.ok)
    if 0 < waits < FEW:
        yield f"p99 of TTFT from {count(waits, 'request')}: below {FEW} it is little more than the largest value"


def _answered(request: Request) -> bool:
    return request.first_token_s is not None


def between(runs: Sequence[Shown]) -> list[str]:
    """Return the doubts about comparing the runs: what of the work, or of the measuring side, was not the same.

    How much was asked at once may differ within an engine's runs, as in a sweep, but not from engine to engine.
    """
    by_load: dict[str, list[Run]] = defaultdict(list)
    loads: dict[str, list[str]] = defaultdict(list)
    for run in runs:
        by_load[run.load].append(run.run)
        loads[run.engine].append(run.load)
    found = [_differing(by_load.values(), part) for part in ("workload", "client")]
    if len({tuple(sorted(each)) for each in loads.values()}) > 1:
        asked = "; ".join(f"{engine} {', '.join(each)}" for engine, each in loads.items())
        found.append(f"Not all were asked for as much at once: {asked}.")
    return [said for said in found if said]


def _differing(groups: Iterable[Sequence[Run]], part: str) -> str:
    differing = (setting.name for group in groups for setting in settings(group) if setting.differs)
    names = dict.fromkeys(name.removeprefix(f"{part}.") for name in differing if name.startswith(f"{part}."))
    return f"The {part} was not the same where it should be; different: {', '.join(names)}." if names else ""
