"""The figures of a run, from its lines and nothing else.

Owns every formula; docs/benchmarking.md says the same in words. With t the seconds of a line:

    TTFT           first_token_s - sent_s
    E2E            end_s - sent_s
    TPOT           (last piece - first piece) / (tokens - tokens of the first piece)
    ITL            a piece of k tokens, g seconds after the piece before it, is k values of g / k
    gap            g itself: the pause that a reader sees
    duration       the last end_s - the first sent_s
    TPM            60 * tokens / duration, of good requests: output; output + prompt - cached; output + prompt
    tps_per_user   the median over requests of 1 / TPOT
    concurrency    the sum of E2E / duration

Quantiles are exact: of all values in order, with linear interpolation between neighbours.

Invariant: a request of the warm-up changes nothing but its own count, and every other request is
counted once as ok, failed or interrupted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from tokenspeed_tools.bench.doubts import busy_share, doubts
from tokenspeed_tools.bench.raw import INTERRUPTED, Counts, PerGpu, Request, Run, Spread, Summary


def summarise(run: Run, requests: Sequence[Request]) -> Summary:
    """Return the figures of `requests`, which belong to `run`."""
    measured = [request for request in requests if not request.warmup]
    good = [request for request in measured if request.error is None]
    bad = [request for request in measured if request.error is not None]
    interrupted = sum(request.error == INTERRUPTED for request in bad)
    duration_s = duration(measured)
    output = sum(request.output_tokens for request in good)
    prompt = sum(request.prompt_tokens or 0 for request in good)
    cached = sum(request.cached_tokens or 0 for request in good)
    per_minute = [_rate(60 * tokens, duration_s) for tokens in (output, output + prompt - cached, output + prompt)]
    tpots = [tpot for request in good if (tpot := tpot_s(request)) is not None]
    return Summary(
        requests=Counts(
            ok=len(good),
            failed=len(bad) - interrupted,
            interrupted=interrupted,
            warmup=len(requests) - len(measured),
        ),
        errors=dict(Counter(request.error for request in bad if request.error is not None)),
        duration_s=round(duration_s, 6),
        ttft_ms=spread_ms(ttfts_s(good)),
        ttft_ms_by_turn=[
            spread_ms(ttfts_s(request for request in good if request.turn == turn))
            for turn in range(1 + max((request.turn for request in good), default=-1))
        ],
        itl_ms=spread_ms(gap for request in good for gap in itls_s(request)),
        gap_ms=spread_ms(gap for request in good for gap in gaps_s(request)),
        tpot_ms=spread_ms(tpots),
        e2e_ms=spread_ms(request.end_s - request.sent_s for request in good),
        prompt_tokens=prompt,
        cached_tokens=cached,
        output_tokens=output,
        prompt_tokens_asked=_sum(request.prompt_tokens_asked for request in good),
        output_tokens_asked=_sum(request.output_tokens_asked for request in good),
        tokens_per_s=_rate(output, duration_s),
        tpm_output=per_minute[0],
        tpm_output_and_uncached=per_minute[1],
        tpm_all=per_minute[2],
        tps_per_user=_per_user(tpots),
        per_gpu=PerGpu(
            tpm_output=round(per_minute[0] / run.gpus, 3),
            tpm_output_and_uncached=round(per_minute[1] / run.gpus, 3),
            tpm_all=round(per_minute[2] / run.gpus, 3),
        )
        if run.gpus
        else None,
        concurrency_mean=_rate(sum(request.end_s - request.sent_s for request in measured), duration_s),
        late_ms=spread_ms(request.sent_s - request.scheduled_s for request in measured if request.status),
        client_lag_ms=spread_ms(request.client_lag_s for request in measured),
        client_busy=round(busy_share(good), 3),
        tokens_from=sorted({request.tokens_from for request in good}),
        warnings=list(doubts(run, measured)),
    )


def duration(requests: Sequence[Request]) -> float:
    """Return the seconds from the first request's sending to the last one's end."""
    if not requests:
        return 0.0
    return max(request.end_s for request in requests) - min(request.sent_s for request in requests)


def ttfts_s(requests: Iterable[Request]) -> Iterator[float]:
    """Yield the seconds to the first token of each request that had one."""
    return (request.first_token_s - request.sent_s for request in requests if request.first_token_s is not None)


def gaps_s(request: Request) -> list[float]:
    """Return the seconds between one piece of output and the next."""
    return [after[0] - before[0] for before, after in pairwise(request.chunks)]


def itls_s(request: Request) -> Iterator[float]:
    """Yield the seconds between tokens: a gap is shared by the tokens of the piece that ends it.

    A piece without tokens lengthens the gap of the next one.
    """
    waited_s = 0.0
    for gap_s, (_, tokens) in zip(gaps_s(request), request.chunks[1:], strict=True):
        waited_s += gap_s
        if tokens:
            yield from [waited_s / tokens] * tokens
            waited_s = 0.0


def tpot_s(request: Request) -> float | None:
    """Return the seconds a token behind the first piece, None where there is none."""
    tokens = sum(count for _, count in request.chunks[1:])
    return (request.chunks[-1][0] - request.chunks[0][0]) / tokens if tokens else None


def spread_ms(values_s: Iterable[float]) -> Spread | None:
    """Return the spread of `values_s` in milliseconds, None without values."""
    ordered = sorted(value * 1e3 for value in values_s)
    if not ordered:
        return None
    p50, p90, p99 = (round(quantile(ordered, share), 4) for share in (0.5, 0.9, 0.99))
    mean = round(sum(ordered) / len(ordered), 4)
    return Spread(count=len(ordered), p50=p50, p90=p90, p99=p99, mean=mean, max=round(ordered[-1], 4))


def quantile(ordered: Sequence[float], share: float) -> float:
    """Return the quantile `share` (0 to 1) of at least one value in order (Hyndman and Fan's type 7)."""
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


def _per_user(tpots: Sequence[float]) -> float | None:
    middle_s = quantile(sorted(tpots), 0.5) if tpots else 0.0
    return round(1 / middle_s, 3) if middle_s > 0 else None


def _rate(amount: float, duration_s: float) -> float:
    return round(amount / duration_s, 3) if duration_s > 0 else 0.0


def _sum(values: Iterable[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
