"""What the engine counts of its requests, for whoever watches it.

Owns counters and histograms over all requests since the engine was ready, and the times of the open
ones. Nothing here tells one request, caller or prompt from another.

Invariant: a request is counted in `ended` exactly once, whatever its end.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from tokenspeed.engine.exposition import Family, Histogram, Sample
from tokenspeed.messages.engine import OutputDelta

REASONS = ("stop", "length", "abort", "error")
FIRST_TOKEN_S = (0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640)
TOKEN_S = (0.002, 0.005, 0.01, 0.015, 0.02, 0.025, 0.03, 0.04, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1, 2.5, 5, 10)
REQUEST_S = (0.1, 0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 60, 120, 240, 480, 960, 1920)


class _Clock:
    """The times of one open request in seconds; `first_s` is 0 until it has a token."""

    __slots__ = ("begun_s", "finish", "first_s", "last_s", "tokens")

    def __init__(self, now_s: float) -> None:
        self.begun_s = self.last_s = now_s
        self.first_s = 0.0
        self.tokens = 0
        self.finish = ""


class Meter:
    """Counts what `AsyncEngine` reports."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._open: dict[int, _Clock] = {}
        self._ended = dict.fromkeys(REASONS, 0)
        self._prompt_tokens = self._cached_tokens = self._generation_tokens = 0
        self._first_token = Histogram(FIRST_TOKEN_S)
        self._between = Histogram(TOKEN_S)
        self._per_token = Histogram(TOKEN_S)
        self._whole = Histogram(REQUEST_S)

    def opened(self, request: int) -> None:
        """Note that `request` was opened."""
        self._open[request] = _Clock(self._clock())

    def output(self, delta: OutputDelta, tokens: int) -> None:
        """Note a delta that brings `tokens` new ids."""
        clock = self._open.get(delta.request)
        if clock is None:
            return
        now_s = self._clock()
        clock.finish = delta.finish
        if not clock.first_s and (tokens or delta.finish):
            clock.first_s = now_s
            self._prompt_tokens += delta.prompt_tokens
            self._cached_tokens += delta.cached_tokens
            self._first_token.observe(now_s - clock.begun_s)
        elif tokens:
            self._between.observe((now_s - clock.last_s) / tokens, tokens)
        if tokens:
            clock.last_s = now_s
            clock.tokens += tokens
            self._generation_tokens += tokens

    def ended(self, request: int, *, cancelled: bool) -> None:
        """Note that `request` has ended; one that has no finish and was not cancelled has failed."""
        clock = self._open.pop(request, None)
        if clock is None:
            return
        self._ended["abort" if cancelled else clock.finish or "error"] += 1
        if cancelled or not clock.finish:
            return
        self._whole.observe(self._clock() - clock.begun_s)
        if clock.tokens > 1:
            self._per_token.observe((clock.last_s - clock.first_s) / (clock.tokens - 1))

    def families(self) -> list[Family]:
        """Return what was counted."""
        ended = [Sample(count, {"finished_reason": reason}) for reason, count in self._ended.items()]
        return [
            _counter("prompt_tokens", "Tokens of prompts, computed or cached.", self._prompt_tokens),
            _counter("generation_tokens", "Tokens of replies.", self._generation_tokens),
            _counter("prefix_cache_queries", "Tokens looked for in the cache.", self._prompt_tokens),
            _counter("prefix_cache_hits", "Tokens found in the cache.", self._cached_tokens),
            Family("tokenspeed:request_success_total", "counter", "Requests that have ended, by reason.", ended),
            _histogram("time_to_first_token_seconds", "From a request to its first token.", self._first_token),
            _histogram("inter_token_latency_seconds", "From one token of a reply to the next.", self._between),
            _histogram(
                "request_time_per_output_token_seconds", "Mean of a reply after its first token.", self._per_token
            ),
            _histogram("e2e_request_latency_seconds", "From a request to its end.", self._whole),
        ]


def _counter(name: str, words: str, value: float) -> Family:
    return Family(f"tokenspeed:{name}_total", "counter", words, [Sample(value)])


def _histogram(name: str, words: str, histogram: Histogram) -> Family:
    return Family(f"tokenspeed:{name}", "histogram", words, histogram.samples())
