"""What the engine counts of its requests, for whoever watches it.

Owns counters and histograms over all requests since the engine was ready, and the times of the open
ones. Nothing here tells one request, caller or prompt from another. Names and buckets are those of
the table in `metrics`.

Invariant: a request is counted in `ended` exactly once, whatever its end. The phases of a reply that
was cancelled or has failed are not observed.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from tokenspeed.engine.exposition import Family, Histogram
from tokenspeed.engine.metrics import CODES, ENDS, METRICS, OTHER
from tokenspeed.messages.engine import OutputDelta

HISTOGRAMS = (
    "request_params_max_tokens",
    "request_params_n",
    "request_prompt_tokens",
    "request_generation_tokens",
    "request_prefill_kv_computed_tokens",
    "time_to_first_token_seconds",
    "inter_token_latency_seconds",
    "request_time_per_output_token_seconds",
    "e2e_request_latency_seconds",
    "request_tokenize_time_seconds",
    "request_queue_time_seconds",
    "request_prefill_time_seconds",
    "request_decode_time_seconds",
    "request_inference_time_seconds",
)


class _Open:
    """One open request; times in seconds, `first_s` is 0 until it has a token."""

    __slots__ = ("begun_s", "cached_tokens", "finish", "first_s", "last_s", "prefill_s", "prompt_tokens", "tokens")

    def __init__(self, now_s: float) -> None:
        self.begun_s = self.last_s = now_s
        self.first_s = 0.0
        self.prefill_s: float | None = None
        self.prompt_tokens = self.cached_tokens = self.tokens = 0
        self.finish = ""


class Meter:
    """Counts what `AsyncEngine` reports; `clock` is the machine's monotonic one."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._open: dict[int, _Open] = {}
        self._ended = dict.fromkeys(ENDS, 0)
        self._errors = dict.fromkeys(CODES, 0)
        self._prompt_tokens = self._cached_tokens = self._generation_tokens = 0
        self._seen: dict[str, Histogram] = {name: METRICS[name].histogram() for name in HISTOGRAMS}
        self.resumed = 0  # requests that a new scheduler took over, and their tokens
        self.resumed_tokens = 0

    def asked(self, n: int) -> None:
        """Note that `n` replies were asked for one prompt."""
        self._seen["request_params_n"].observe(n)

    def opened(self, request: int, max_tokens: int | None = None) -> None:
        """Note that `request` was opened."""
        self._open[request] = _Open(self._clock())
        if max_tokens is not None:
            self._seen["request_params_max_tokens"].observe(max_tokens)

    def output(self, delta: OutputDelta, tokens: int) -> None:
        """Note a delta that brings `tokens` new ids."""
        request = self._open.get(delta.request)
        if request is None:
            return
        now_s = self._clock()
        request.finish = delta.finish
        if not request.first_s and (tokens or delta.finish):
            self._first_output(request, delta, now_s)
        elif tokens:
            self._seen["inter_token_latency_seconds"].observe((now_s - request.last_s) / tokens, tokens)
        if tokens:
            request.last_s = now_s
            request.tokens += tokens
            self._generation_tokens += tokens

    def resume(self, tokens: int) -> None:
        """Note that a new scheduler has to compute `tokens` tokens of an open request again."""
        self.resumed += 1
        self.resumed_tokens += tokens

    def ended(self, request: int, *, cancelled: bool, error: str = "") -> None:
        """Note that `request` has ended; one that has no finish and was not cancelled has failed with code `error`."""
        ended = self._open.pop(request, None)
        if ended is None:
            return
        reason = "abort" if cancelled else ended.finish or "error"
        self._ended[reason] += 1
        if reason == "error":
            self._errors[error if error in CODES else OTHER] += 1
        if reason in ("stop", "length"):
            self._whole(ended)

    def families(self) -> list[Family]:
        """Return what was counted."""
        counts = {
            "prompt_tokens_total": self._prompt_tokens,
            "generation_tokens_total": self._generation_tokens,
            "prefix_cache_queries_total": self._prompt_tokens,
            "prefix_cache_hits_total": self._cached_tokens,
        }
        return [
            METRICS["request_success_total"].each({(reason,): count for reason, count in self._ended.items()}),
            METRICS["request_errors_total"].each({(code,): count for code, count in self._errors.items()}),
            *(METRICS[name].one(count) for name, count in counts.items()),
            *(METRICS[name].observed(histogram) for name, histogram in self._seen.items()),
        ]

    def _first_output(self, request: _Open, delta: OutputDelta, now_s: float) -> None:
        seen, times = self._seen, delta.times
        request.first_s = now_s
        request.prompt_tokens, request.cached_tokens = delta.prompt_tokens, delta.cached_tokens
        self._prompt_tokens += delta.prompt_tokens
        self._cached_tokens += delta.cached_tokens
        seen["time_to_first_token_seconds"].observe(now_s - request.begun_s)
        if times is not None:
            request.prefill_s = (times.first_us - times.admitted_us) / 1e6
            seen["request_tokenize_time_seconds"].observe(max(0.0, times.submitted_us / 1e6 - request.begun_s))
            seen["request_queue_time_seconds"].observe((times.admitted_us - times.submitted_us) / 1e6)
            seen["request_prefill_time_seconds"].observe(request.prefill_s)

    def _whole(self, ended: _Open) -> None:
        seen, decode_s = self._seen, ended.last_s - ended.first_s if ended.tokens else 0.0
        seen["e2e_request_latency_seconds"].observe(self._clock() - ended.begun_s)
        seen["request_prompt_tokens"].observe(ended.prompt_tokens)
        seen["request_prefill_kv_computed_tokens"].observe(ended.prompt_tokens - ended.cached_tokens)
        seen["request_generation_tokens"].observe(ended.tokens)
        seen["request_decode_time_seconds"].observe(decode_s)
        if ended.prefill_s is not None:
            seen["request_inference_time_seconds"].observe(ended.prefill_s + decode_s)
        if ended.tokens > 1:
            seen["request_time_per_output_token_seconds"].observe(decode_s / (ended.tokens - 1))
