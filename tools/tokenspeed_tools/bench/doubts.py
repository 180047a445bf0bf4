"""What makes the figures of a run doubtful, in words.

Owns the bounds beyond which a figure should not be believed. Reads the lines of a run, as `summary`
does, and changes no figure.

Invariant: whatever was left out or guessed in a run is told here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

from tokenspeed_tools.bench.raw import INTERRUPTED, Request, Run

BUSY_MOST = 0.7  # of the client's one thread; beyond that, pieces wait for the client
LAG_LEAST_S = 0.005
PAGE_TOKENS = 256  # a cache may share what a template puts before every prompt


def doubts(run: Run, measured: Sequence[Request]) -> Iterator[str]:
    """Yield one sentence for each doubt; `measured` are the requests without the warm-up."""
    good = [request for request in measured if request.error is None]
    yield from _failures(run, measured)
    yield from _overload(good)
    yield from _counting(good)
    yield from _asked(good)
    yield from _cache(run, good)


def busy_share(requests: Sequence[Request]) -> float:
    """Return the share of the requests' time that the client's thread spent computing, 0 to 1."""
    open_s = sum(request.end_s - request.sent_s for request in requests)
    busy_s = sum(request.client_busy * (request.end_s - request.sent_s) for request in requests)
    return busy_s / open_s if open_s > 0 else 0.0


def _failures(run: Run, measured: Sequence[Request]) -> Iterator[str]:
    failed = sum(request.error not in (None, INTERRUPTED) for request in measured)
    if failed:
        yield f"{failed} of {len(measured)} requests failed; no time or token of theirs is in the figures"
    planned = run.workload.get("requests_planned")
    if isinstance(planned, int) and len(measured) < planned:
        yield f"the run was cut short: {planned} requests were planned and {len(measured)} sent"


def _overload(good: Sequence[Request]) -> Iterator[str]:
    busy = busy_share(good)
    if busy > BUSY_MOST:
        yield (
            f"the client was the bottleneck: it was busy for {busy:.0%} of the time, "
            f"and {BUSY_MOST:.0%} is the most at which its times are right"
        )
    lags = [request.client_lag_s for request in good]
    gaps = [
        (request.chunks[-1][0] - request.chunks[0][0]) / (len(request.chunks) - 1)
        for request in good
        if len(request.chunks) > 1
    ]
    if lags and gaps and median(lags) > max(LAG_LEAST_S, median(gaps) / 2):
        yield (
            f"the client was late: half of the requests saw its event loop {median(lags) * 1e3:.1f} ms late or more, "
            f"and a piece came every {median(gaps) * 1e3:.1f} ms; run it on other cores than the server"
        )


def _counting(good: Sequence[Request]) -> Iterator[str]:
    if any(request.tokens_from == "chunks" for request in good):
        yield "the server told no usage: a piece of output counts as one token"
    if any(request.prompt_tokens is None for request in good):
        yield "the server did not count the prompts of all requests: their input is not in the figures"
    elif good and all(request.cached_tokens is None for request in good):
        yield "the server does not tell cached tokens: all input counts as uncached"


def _asked(good: Sequence[Request]) -> Iterator[str]:
    for what in ("prompt", "output"):
        pairs = [
            (asked, seen)
            for request in good
            if (asked := getattr(request, f"{what}_tokens_asked")) is not None
            and (seen := getattr(request, f"{what}_tokens")) is not None
        ]
        wanted, got = sum(asked for asked, _ in pairs), sum(seen for _, seen in pairs)
        if abs(wanted - got) > 0.01 * wanted:
            yield f"{what} tokens: {wanted} were asked for and {got} seen"


def _cache(run: Run, good: Sequence[Request]) -> Iterator[str]:
    if run.mode == "agentic" or not isinstance(shared := run.workload.get("prefix_tokens"), int):
        return
    cached = sum(request.cached_tokens or 0 for request in good)
    if cached > len(good) * (shared + PAGE_TOKENS):
        yield (
            f"{cached} prompt tokens were in the server's cache though only {shared} of each are shared: "
            "it has seen these prompts before; give another --seed, or empty its cache"
        )
