"""Spans of OpenTelemetry: one of each call, and the phases of its replies below it.

Owns how a call is told as spans, with the attributes of the conventions for generative AI and those
that vLLM added. They are made when the call has ended, of what the engine has counted for its caller,
so that a request pays nothing on its way. A trace that the client has begun is continued. The library
is an extra and imported only when spans are wanted; sending is its own thread's business.

Invariant: whatever a collector does, no call waits for it and none fails.

https://opentelemetry.io/docs/specs/semconv/gen-ai/gen-ai-spans/
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tokenspeed import __version__
from tokenspeed.caller import Account, Caller
from tokenspeed.engine.metrics import ROUTES
from tokenspeed.errors import StartError

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import TracerProvider

SERVICE = "tokenspeed"
OPERATIONS = {"/v1/chat/completions": "chat", "/v1/completions": "text_completion", "/generate": "text_completion"}
ASKED = ("max_tokens", "temperature", "top_p")
SEND_S_MAX = 5.0  # for one batch, retries included
CLOSE_S_MAX = 2.0

log = logging.getLogger("tokenspeed.server")


class Spans:
    """Tells calls for `model` to `provider`."""

    def __init__(self, provider: TracerProvider, model: str) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer(SERVICE, __version__)
        self._model = model

    def ended(self, what: str, status: int, begun_s: float, caller: Caller) -> None:
        """Tell of the call `what` ("POST /v1/..."), begun at `begun_s` of the monotonic clock, that ends now."""
        try:
            self._tell(what, status, begun_s, caller)
        except Exception:
            log.exception("no span could be made of a request", extra={"fields": {"id": caller.id}})

    async def close(self) -> None:
        """Send what is left, for a moment; a collector that does not take it is left behind."""
        loop, done = asyncio.get_running_loop(), asyncio.Event()

        def closing() -> None:
            self._provider.shutdown()
            with contextlib.suppress(RuntimeError):  # the loop has gone on without it
                loop.call_soon_threadsafe(done.set)

        # A thread that nobody joins: the library may wait for its collector longer than a server may end.
        threading.Thread(target=closing, daemon=True).start()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(done.wait(), CLOSE_S_MAX)

    def _tell(self, what: str, status: int, begun_s: float, caller: Caller) -> None:
        from opentelemetry.trace import SpanKind, Status, StatusCode, set_span_in_context

        shift_ns = time.time_ns() - time.monotonic_ns()
        context = _context(caller)
        span = self._tracer.start_span(
            self._name(what, caller),
            context,
            SpanKind.SERVER,
            attributes={**_call(what, status, caller), **self._generation(what, caller)},
            start_time=shift_ns + int(begun_s * 1e9),
        )
        if status >= 500:
            span.set_status(Status(StatusCode.ERROR))
            span.set_attribute("error.type", str(status))
        inside = set_span_in_context(span, context)
        for reply in caller.replies:
            for name, from_s, to_s in _phases(reply):
                times = (shift_ns + int(from_s * 1e9), shift_ns + int(to_s * 1e9))
                attributes = {"tokenspeed.request": reply.request}
                self._tracer.start_span(name, inside, attributes=attributes, start_time=times[0]).end(times[1])
        span.end()

    def _name(self, what: str, caller: Caller) -> str:
        method, _, path = what.partition(" ")
        if caller.replies and path in OPERATIONS:
            return f"{OPERATIONS[path]} {self._model}"
        return what if path in ROUTES else method  # not what clients make up

    def _generation(self, what: str, caller: Caller) -> Mapping[str, Any]:
        path, replies = what.partition(" ")[2], caller.replies
        if not replies:
            return {}
        input_tokens = sum(reply.prompt_tokens for reply in replies)
        output_tokens = sum(reply.completion_tokens for reply in replies)
        return {
            "gen_ai.operation.name": OPERATIONS.get(path, "text_completion"),
            "gen_ai.provider.name": SERVICE,
            "gen_ai.request.model": self._model,
            "gen_ai.response.model": self._model,
            "gen_ai.response.id": caller.trail.answer,
            "gen_ai.response.finish_reasons": [reply.finish for reply in replies],
            "gen_ai.usage.input_tokens": input_tokens,
            "gen_ai.usage.output_tokens": output_tokens,
            "gen_ai.usage.cache_read.input_tokens": sum(reply.cached_tokens for reply in replies),
            "gen_ai.usage.prompt_tokens": input_tokens,
            "gen_ai.usage.completion_tokens": output_tokens,
            "gen_ai.usage.num_sequences": len(replies),
            **_asked(replies[0]),
            **_latencies(replies),
        }


def open_spans(endpoint: str, model: str) -> Spans:
    """Return what sends spans to the collector at the URL `endpoint`; raise `StartError` without the library."""
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise StartError(
            f"--otlp-traces-endpoint needs OpenTelemetry, and it cannot be imported ({error}); install the extra otel: "
            "python -m pip install 'tokenspeed[otel]', or leave the setting out."
        ) from None
    resource = Resource.create()  # what OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES say
    if str(resource.attributes.get("service.name", "unknown_service")).startswith("unknown_service"):
        resource = resource.merge(Resource({"service.name": SERVICE, "service.version": __version__}))
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint, timeout=SEND_S_MAX)))
    return Spans(provider, model)


def _context(caller: Caller) -> Context:
    """Return the trace that the client has begun, or a new one."""
    from opentelemetry.context import Context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    headers = {"traceparent": caller.context.parent, "tracestate": caller.context.state}
    return TraceContextTextMapPropagator().extract(headers, Context()) if caller.context.parent else Context()


def _call(what: str, status: int, caller: Caller) -> Mapping[str, Any]:
    method, _, path = what.partition(" ")
    return {
        "http.request.method": method,
        "url.path": path,
        "http.response.status_code": status,
        "gen_ai.request.id": caller.id,
    }


def _asked(reply: Account) -> Mapping[str, Any]:
    values = {name: getattr(reply.sampling, name, None) for name in ASKED}
    return {f"gen_ai.request.{name}": value for name, value in values.items() if value is not None}


def _latencies(replies: Sequence[Account]) -> Mapping[str, float]:
    """Return the times of the slowest reply in seconds."""
    phases = [{name: to_s - from_s for name, from_s, to_s in _phases(reply)} for reply in replies]

    def slowest(values: Iterable[float]) -> float:
        return round(max(values, default=0.0), 6)

    return {
        "gen_ai.latency.time_to_first_token": slowest(r.first_s for r in replies if r.first_s is not None),
        "gen_ai.latency.e2e": slowest(reply.duration_s for reply in replies),
        "gen_ai.latency.time_in_queue": slowest(each["queue"] for each in phases if each),
        "gen_ai.latency.time_in_model_prefill": slowest(each["prefill"] for each in phases if each),
        "gen_ai.latency.time_in_model_decode": slowest(each["decode"] for each in phases if each),
        "gen_ai.latency.time_in_model_inference": slowest(e["prefill"] + e["decode"] for e in phases if e),
    }


def _phases(reply: Account) -> Iterator[tuple[str, float, float]]:
    """Yield name, begin and end of each phase in seconds of the monotonic clock; none if no token came."""
    times = reply.times
    if times is None:
        return
    marks = (reply.begun_s, times.submitted_us / 1e6, times.admitted_us / 1e6, times.first_us / 1e6)
    ends = (*marks[1:], max(marks[3], reply.begun_s + reply.duration_s))
    yield from zip(("tokenize", "queue", "prefill", "decode"), marks, ends, strict=True)
