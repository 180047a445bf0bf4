"""Why a step took longer than its like: what was noted while it ran.

Owns the search for causes and their words. It does not know which steps are slow.

Invariant: a reason names something that was noted inside the step's time; without any it says that there is none.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tokenspeed_tools.trace.past import Past
from tokenspeed_tools.trace.steps import Span, Step
from tokenspeed_tools.trace.words import duration, listed, prompt_tokens, requests

UNKNOWN = "nothing was noted that explains it: other work on this machine is likely"
SHARE_MIN = 0.1  # of the excess: what stopped an actor for less explains nothing
MORE_TIMES = 1.25  # so much more than the median is worth a word


class Usual(NamedTuple):
    """What the steps that one is held against have: rows (0: not known) and prompt tokens."""

    rows: int = 0
    prompt_tokens: int = 0


def reasons(past: Past, step: Step, span: Span, excess_ns: float, usual: Usual, *, but: int = 0) -> str:
    """Return why `step`, which took `span`, was `excess_ns` longer than usual.

    Chunks of the request `but` are no reason.
    """
    found = [*_chunks(step, usual.prompt_tokens, but), *_rows(step, usual.rows)]
    found += [*_collections(past, span, excess_ns), *_rings(past, span)]
    if not found:
        found += _encodings(past, span)
    found += _starts(past, span)
    return "; ".join(found) or UNKNOWN


def _chunks(step: Step, tokens: int, but: int) -> Iterator[str]:
    others = {request: count for request, count in step.chunks.items() if request != but}
    if sum(others.values()) > MORE_TIMES * tokens:
        usual = f" (median {tokens:,})" if tokens else ""
        yield f"it computed {prompt_tokens(others)}{usual}"


def _rows(step: Step, rows: int) -> Iterator[str]:
    if rows and step.rows > MORE_TIMES * rows:
        yield f"it had {step.rows} rows (median {rows})"


def _collections(past: Past, span: Span, excess_ns: float) -> Iterator[str]:
    for actor in ("scheduler", "executor"):
        stopped = past.collections[actor].overlap_ns(span) if actor in past.collections else 0
        if stopped > SHARE_MIN * excess_ns:
            yield f"Python's cycle collector stopped the {actor} for {duration(stopped)}"


def _rings(past: Past, span: Span) -> Iterator[str]:
    names = sorted({name for time_ns, name in past.full if span.begin_ns <= time_ns <= span.end_ns})
    if names:
        yield f"no room in the ring from {listed(names)}"


def _encodings(past: Past, span: Span) -> Iterator[str]:
    if found := past.encoded(span):
        yield f"the tokenizer encoded the prompt of {requests(found)} meanwhile"


def _starts(past: Past, span: Span) -> Iterator[str]:
    for time_ns, actor in past.starts:
        if span.begin_ns <= time_ns <= span.end_ns:
            yield f"the {actor} was started again"
