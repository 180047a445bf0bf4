"""Every metric there is: one table, from which everything that names them comes.

Owns name, kind, words, labels and buckets of each family, and how it stands to the metrics of the
same name elsewhere. Who counts takes its families from here; docs/metrics.md is written from it by
`python -m tokenspeed_tools.metrics`. The list is a contract: dashboards and autoscalers are built on
it, so a name is only ever added (`tests/engine/metrics.txt` holds it).

Invariant: a family that is told is in the table, and has every combination of its closed labels.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import NamedTuple

from tokenspeed.engine.exposition import Family, Histogram, Kind, Sample
from tokenspeed.engine.launch import EDGES, HOME
from tokenspeed.messages.engine import STEP_TIMES_US, STEP_TOKENS

PREFIX = "tokenspeed:"
SAME = "same"
ENDS = ("stop", "length", "abort", "error")
CODES = ("invalid", "row_failed", "step_failed", "fatal_request", "engine_lost", "draining", "other")
CLASSES = ("free", "owned", "cached_idle", "cached_leased", "zombie")
RETRACTED = ("memory", "executor_restart", "scheduler_restart")
RINGS = tuple(f"{edge.writer} to {reader}" for edge in EDGES for reader in edge.readers)
ACTORS = tuple(dict.fromkeys(edge.writer for edge in EDGES if edge.writer != HOME))
NO_ROUTE = "none"
ROUTES = (
    "/v1/chat/completions",
    "/v1/completions",
    "/generate",
    "/tokenize",
    "/detokenize",
    "/v1/tokenize",
    "/v1/detokenize",
    "/v1/models",
    "/v1/models/{model:path}",
    "/health",
    "/ready",
    "/version",
    "/flush_cache",
    "/stats",
    "/requests",
    "/metrics",
    NO_ROUTE,
)
OTHER = "other"
STATUSES = (*map(str, (200, 400, 401, 403, 404, 405, 408, 413, 415, 429, 431, 499, 500, 503)), OTHER)

FIRST_TOKEN_S = (0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640)
TOKEN_S = (0.002, 0.005, 0.01, 0.015, 0.02, 0.025, 0.03, 0.04, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1, 2.5, 5, 10)
REQUEST_S = (0.1, 0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 60, 120, 240, 480, 960, 1920)
TOKENS = (1, 2, 5, *(digit * 10**power for power in range(1, 6) for digit in (1, 2, 5)), 1_000_000)
CHOICES = (1, 2, 5, 10, 20)


class Label(NamedTuple):
    """A label: its closed set of `values`, or, of an open one, what its value `means`."""

    name: str
    values: tuple[str, ...] = ()
    means: str = ""


class Metric(NamedTuple):
    """One family; `name` stands behind the prefix.

    `vllm` and `upstream` are `SAME` where the metric of that name means the same there, "" where there
    is none, else what differs. Upstream is the TokenSpeed of lightseekorg.
    """

    name: str
    kind: Kind
    help: str
    vllm: str = ""
    upstream: str = ""
    labels: tuple[Label, ...] = ()
    bounds: tuple[float, ...] = ()

    @property
    def full_name(self) -> str:
        """The name as it is told."""
        return PREFIX + self.name

    def one(self, value: float) -> Family:
        """Return the family of a metric without labels."""
        return self._family([Sample(value)])

    def each(self, values: Mapping[tuple[str, ...], float]) -> Family:
        """Return the family with `values` by the values of the labels; what is closed and missing is 0."""
        closed = all(label.values for label in self.labels)
        zeros = dict.fromkeys(product(*(label.values for label in self.labels)), 0.0) if closed else {}
        names = [label.name for label in self.labels]
        return self._family(
            [Sample(value, dict(zip(names, key, strict=True))) for key, value in {**zeros, **values}.items()]
        )

    def histogram(self) -> Histogram:
        """Return an empty histogram with the buckets of this metric."""
        return Histogram(self.bounds)

    def observed(self, histogram: Histogram) -> Family:
        """Return the family with what `histogram` holds."""
        return self._family(histogram.samples())

    def _family(self, samples: list[Sample]) -> Family:
        return Family(self.full_name, self.kind, self.help, samples)


class Group(NamedTuple):
    """Metrics that are told under one heading."""

    title: str
    metrics: tuple[Metric, ...]


REQUESTS = Group(
    "Requests",
    (
        Metric(
            "num_requests_running",
            "gauge",
            "Requests that are being computed; every choice of an answer is a request.",
            SAME,
            "there only those that decode",
        ),
        Metric(
            "num_requests_waiting",
            "gauge",
            "Requests that wait: to be tokenised, to be admitted, or to be computed again.",
            SAME,
            SAME,
        ),
        Metric("num_requests_limit", "gauge", "Requests open at once at most; one more is refused with 429."),
        Metric(
            "request_success_total",
            "counter",
            "Requests that have ended, by reason: stop, length, abort (the caller left), error.",
            SAME,
            "there without the label",
            (Label("finished_reason", ENDS),),
        ),
        Metric(
            "request_errors_total",
            "counter",
            "Requests that have ended with an error, by code; invalid is the caller's fault.",
            "corrupted_requests_total counts what is row_failed here",
            "num_nan_aborted_requests_total counts what is row_failed here",
            (Label("code", CODES),),
        ),
        Metric(
            "request_params_max_tokens",
            "histogram",
            "The max_tokens of requests that have one.",
            SAME,
            bounds=TOKENS,
        ),
        Metric("request_params_n", "histogram", "Choices asked for one prompt.", SAME, bounds=CHOICES),
    ),
)
TOKEN_COUNTS = Group(
    "Tokens",
    (
        Metric("prompt_tokens_total", "counter", "Tokens of prompts, computed or cached.", SAME, SAME),
        Metric("generation_tokens_total", "counter", "Tokens of replies.", SAME, SAME),
        Metric("request_prompt_tokens", "histogram", "Tokens of a prompt.", SAME, bounds=TOKENS),
        Metric("request_generation_tokens", "histogram", "Tokens of a reply.", SAME, bounds=TOKENS),
        Metric(
            "request_prefill_kv_computed_tokens",
            "histogram",
            "Tokens of a prompt that were not found in the cache.",
            SAME,
            bounds=TOKENS,
        ),
        Metric("prefix_cache_queries_total", "counter", "Tokens of prompts, looked for in the cache.", SAME),
        Metric("prefix_cache_hits_total", "counter", "Tokens of prompts, found in the cache.", SAME, SAME),
    ),
)
TIMES = Group(
    "Times of a request",
    (
        Metric(
            "time_to_first_token_seconds",
            "histogram",
            "From a request to its first token.",
            SAME,
            SAME,
            bounds=FIRST_TOKEN_S,
        ),
        Metric(
            "inter_token_latency_seconds",
            "histogram",
            "From one token of a reply to the next.",
            SAME,
            SAME,
            bounds=TOKEN_S,
        ),
        Metric(
            "request_time_per_output_token_seconds",
            "histogram",
            "Mean time per token of a reply after its first.",
            SAME,
            "there the time to the first token is in it",
            bounds=TOKEN_S,
        ),
        Metric("e2e_request_latency_seconds", "histogram", "From a request to its end.", SAME, SAME, bounds=REQUEST_S),
        Metric(
            "request_tokenize_time_seconds",
            "histogram",
            "From a request until the scheduler has its tokens.",
            bounds=FIRST_TOKEN_S,
        ),
        Metric(
            "request_queue_time_seconds",
            "histogram",
            "From the scheduler's having a request until it is first computed.",
            SAME,
            bounds=FIRST_TOKEN_S,
        ),
        Metric(
            "request_prefill_time_seconds",
            "histogram",
            "From the first computing of a request until its first token is known.",
            SAME,
            bounds=FIRST_TOKEN_S,
        ),
        Metric(
            "request_decode_time_seconds",
            "histogram",
            "From the first token of a reply to its last.",
            SAME,
            bounds=REQUEST_S,
        ),
        Metric(
            "request_inference_time_seconds",
            "histogram",
            "Prefill and decode together.",
            SAME,
            bounds=REQUEST_S,
        ),
    ),
)
CACHE = Group(
    "KV cache",
    (
        Metric("kv_cache_usage_perc", "gauge", "Share of KV pages that requests hold; 1 is all of them.", SAME, SAME),
        Metric(
            "kv_pages",
            "gauge",
            "KV pages by class; cached_idle ones are given up when others need them.",
            labels=(Label("class", CLASSES),),
        ),
        Metric(
            "cache_config_info",
            "gauge",
            "Always 1; the labels tell how the cache is made.",
            SAME,
            labels=(
                Label("block_size", means="tokens of a page"),
                Label("num_gpu_blocks", means="pages, of whatever device; 0 until they are known"),
                Label("enable_prefix_caching", ("True", "False")),
            ),
        ),
    ),
)
STEPS = Group(
    "Steps",
    (
        Metric("steps_total", "counter", "Forward passes."),
        Metric(
            "step_time_seconds",
            "histogram",
            "Time that the device works for one forward pass.",
            bounds=tuple(us / 1e6 for us in STEP_TIMES_US),
        ),
        Metric("iteration_tokens_total", "histogram", "Tokens of one forward pass.", SAME, SAME, bounds=STEP_TOKENS),
        Metric(
            "num_preemptions_total",
            "counter",
            "Requests that gave their pages up for others: retractions_total for want of memory.",
            SAME,
        ),
        Metric(
            "retractions_total",
            "counter",
            "Requests that must be computed again, by reason.",
            labels=(Label("reason", RETRACTED),),
        ),
        Metric(
            "retracted_tokens_total",
            "counter",
            "Tokens that retractions made to be computed again, by reason.",
            labels=(Label("reason", RETRACTED),),
        ),
    ),
)
ENGINE = Group(
    "Engine",
    (
        Metric("engine_ready", "gauge", "1 while new requests are taken, else 0."),
        Metric("actor_up", "gauge", "1 while a process of the engine works, else 0.", labels=(Label("actor", ACTORS),)),
        Metric(
            "actor_restarts_total",
            "counter",
            "Times that a process of the engine was started again.",
            labels=(Label("actor", ACTORS),),
        ),
        Metric(
            "ring_fill_bytes",
            "gauge",
            "Bytes that wait between two processes.",
            labels=(Label("ring", RINGS),),
        ),
        Metric(
            "build_info", "gauge", "Always 1; the label tells the version.", labels=(Label("version", means="0.1.0"),)
        ),
    ),
)
HTTP = Group(
    "HTTP",
    (
        Metric("http_requests_open", "gauge", "Requests over HTTP that are being answered, probes included."),
        Metric(
            "http_responses_total",
            "counter",
            "Answers over HTTP; 499: the client left before its answer began.",
            labels=(Label("route", ROUTES), Label("status", STATUSES)),
        ),
    ),
)
GROUPS = (REQUESTS, TOKEN_COUNTS, TIMES, CACHE, STEPS, ENGINE, HTTP)
METRICS = {metric.name: metric for group in GROUPS for metric in group.metrics}


def common_with_vllm(family: Family) -> bool:
    """Tell whether vLLM has a metric that means the same, under its own prefix."""
    return METRICS[family.name.removeprefix(PREFIX)].vllm == SAME
