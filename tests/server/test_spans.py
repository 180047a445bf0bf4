"""Spans, as a collector reads them."""

from __future__ import annotations

import asyncio
import builtins
import logging
import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.server.doors import CHAT, HI, Door, knock
from tests.server.fake_engine import FakeEngine
from tokenspeed.caller import Caller
from tokenspeed.errors import EngineError, StartError
from tokenspeed.server.spans import open_spans

PARENT = f"00-{'a1' * 16}-{'b2' * 8}-01"


class Collector:
    """A collector of OpenTelemetry over HTTP, which keeps what it was sent."""

    def __init__(self) -> None:
        self.requests: list[ExportTraceServiceRequest] = []
        kept = self.requests

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                if self.path == "/v1/traces":
                    kept.append(ExportTraceServiceRequest.FromString(body))
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1/traces"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def spans(self) -> list[Span]:
        """Return the spans that came."""
        return [
            span
            for request in self.requests
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    running = Collector()
    yield running
    running.close()


def attributes(span: Span) -> dict[str, Any]:
    """Return the attributes of a span as plain values."""
    return {entry.key: getattr(entry.value, str(entry.value.WhichOneof("value"))) for entry in span.attributes}


def test_a_request_is_a_span_that_continues_the_clients_trace(collector: Collector) -> None:
    spans = open_spans(collector.url, "fake-model")

    async def test(door: Door) -> None:
        headers = {"x-request-id": "mine", "traceparent": PARENT, "tracestate": "vendor=1"}
        reply = await door.client.post(CHAT, json={**HI, "max_tokens": 9, "temperature": 0.5}, headers=headers)
        for path in ("/health", "/metrics", "/made/up"):
            await door.client.get(path)
        await spans.close()
        told = {span.name: span for span in collector.spans()}
        assert set(told) == {"chat fake-model", "tokenize", "queue", "prefill", "decode", "GET"}
        whole = told["chat fake-model"]
        assert (whole.trace_id.hex(), whole.parent_span_id.hex()) == ("a1" * 16, "b2" * 8)
        assert whole.trace_state == "vendor=1"
        assert whole.kind == Span.SPAN_KIND_SERVER
        said = attributes(whole)
        latencies = {name: said.pop(name) for name in list(said) if name.startswith("gen_ai.latency.")}
        assert [each.string_value for each in said.pop("gen_ai.response.finish_reasons").values] == ["stop"]
        assert said == {
            "http.request.method": "POST",
            "url.path": CHAT,
            "http.response.status_code": 200,
            "gen_ai.request.id": "mine",
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "tokenspeed",
            "gen_ai.request.model": "fake-model",
            "gen_ai.request.max_tokens": 9,
            "gen_ai.request.temperature": 0.5,
            "gen_ai.request.top_p": 1.0,
            "gen_ai.response.model": "fake-model",
            "gen_ai.response.id": reply.json()["id"],
            "gen_ai.usage.input_tokens": 7,
            "gen_ai.usage.output_tokens": 3,
            "gen_ai.usage.cache_read.input_tokens": 4,
            "gen_ai.usage.prompt_tokens": 7,
            "gen_ai.usage.completion_tokens": 3,
            "gen_ai.usage.num_sequences": 1,
        }
        assert {name.rpartition(".")[2]: round(value, 3) for name, value in latencies.items()} == {
            "time_to_first_token": 0.01,
            "e2e": 0.03,
            "time_in_queue": 0.002,
            "time_in_model_prefill": 0.006,
            "time_in_model_decode": 0.021,
            "time_in_model_inference": 0.027,
        }
        queue = told["queue"]
        assert (queue.trace_id, queue.parent_span_id) == (whole.trace_id, whole.span_id)
        assert attributes(queue) == {"tokenspeed.request": 1}
        assert abs(queue.end_time_unix_nano - queue.start_time_unix_nano - 2_000_000) < 2_000
        assert abs(queue.start_time_unix_nano / 1e9 - time.time()) < 60
        other = told["GET"]
        assert other.trace_id != whole.trace_id
        assert not other.parent_span_id

    knock(test, spans=spans)


def test_a_server_error_is_one_in_its_span(collector: Collector) -> None:
    spans = open_spans(collector.url, "fake-model")

    async def test(door: Door) -> None:
        assert (await door.chat()).status_code == 500
        await spans.close()
        (span,) = (span for span in collector.spans() if span.kind == Span.SPAN_KIND_SERVER)
        assert span.status.code == 2
        assert attributes(span)["error.type"] == "500"

    knock(test, lambda: FakeEngine(script=[(EngineError("broken"),)]).begin(), spans=spans)


def test_a_collector_that_is_gone_costs_no_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tokenspeed.server.spans.CLOSE_S_MAX", 0.3)
    with socket.socket() as sock:  # bound and not listening: nobody else takes the port
        sock.bind(("127.0.0.1", 0))
        spans = open_spans(f"http://127.0.0.1:{sock.getsockname()[1]}/v1/traces", "fake-model")

        async def test(door: Door) -> None:
            assert [(await door.chat()).status_code for _ in range(3)] == [200] * 3
            begun_s = time.monotonic()
            await spans.close()
            assert time.monotonic() - begun_s < 1.3

        knock(test, spans=spans)


def test_a_span_that_cannot_be_made_is_logged(caplog: pytest.LogCaptureFixture, collector: Collector) -> None:
    spans = open_spans(collector.url, "fake-model")
    spans.ended("POST /v1/completions", 200, "no time", Caller("mine"))  # type: ignore[arg-type]
    asyncio.run(spans.close())
    (record,) = (record for record in caplog.records if record.levelno == logging.ERROR)
    assert vars(record)["fields"] == {"id": "mine"}


def test_without_the_library_the_start_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *more: Any) -> Any:
        if name.startswith("opentelemetry"):
            raise ModuleNotFoundError(f"No module named {name!r}")
        return real(name, *more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(StartError, match=r"extra otel: .*'tokenspeed\[otel\]'"):
        open_spans("http://127.0.0.1:4318/v1/traces", "m")
