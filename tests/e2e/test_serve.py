"""The server as its operator knows it: signals, drain, sudden death, and nothing left behind."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from pathlib import Path

import httpx
import pytest

from tests.conftest import Record
from tests.e2e.harness import assert_nothing_remains, children, leftovers
from tests.e2e.served import Server, serving

READY_S_MAX = 6.0
BODY = {"model": "tiny", "messages": [{"role": "user", "content": "Count."}], "temperature": 0, "ignore_eos": True}


def _ask(server: Server, **more: object) -> httpx.Response:
    return httpx.post(f"{server.url}/v1/chat/completions", json={**BODY, **more}, timeout=30.0)


def test_whole_and_streamed_are_equal_and_usage_tells_the_cache(tiny_model: Path) -> None:
    with serving(tiny_model) as server:
        whole = _ask(server, max_tokens=30).json()
        with httpx.stream(
            "POST",
            f"{server.url}/v1/chat/completions",
            json={**BODY, "max_tokens": 30, "stream": True, "stream_options": {"include_usage": True}},
        ) as response:
            events = [line.removeprefix("data: ") for line in response.iter_lines() if line.startswith("data: ")]
        assert events.pop() == "[DONE]"
        chunks = [json.loads(event) for event in events]
        usage = chunks.pop()["usage"]
        text = "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks)
        assert text == whole["choices"][0]["message"]["content"]
        assert chunks[-1]["choices"][0]["finish_reason"] == whole["choices"][0]["finish_reason"] == "length"
        assert usage["completion_tokens"] == whole["usage"]["completion_tokens"] == 30
        assert usage["prompt_tokens_details"]["cached_tokens"] > 0


def test_only_executors_import_torch(tiny_model: Path) -> None:
    with serving(tiny_model) as server:
        with_torch = [
            pid
            for pid in [server.process.pid, *children(server.process.pid)]
            if "libtorch_cpu" in Path(f"/proc/{pid}/maps").read_text()
        ]
        assert len(with_torch) == 1


def test_sigterm_lets_open_streams_finish_and_refuses_new_ones(tiny_model: Path) -> None:
    with serving(tiny_model) as server:
        body = {**BODY, "max_tokens": 400, "stream": True}
        with httpx.stream("POST", f"{server.url}/v1/chat/completions", json=body, timeout=30.0) as response:
            lines = response.iter_lines()
            next(lines)
            server.process.send_signal(signal.SIGTERM)
            time.sleep(0.1)
            assert _ask(server, max_tokens=1).status_code == 503
            assert httpx.get(f"{server.url}/ready").status_code == 503
            rest = list(lines)
        assert rest[-2:] == ["data: [DONE]", ""] or "data: [DONE]" in rest[-3:]
        assert any('"finish_reason":"length"' in line for line in rest)
        assert server.process.wait(10.0) == 0


@pytest.mark.kill
def test_second_signal_stops_at_once(tiny_model: Path) -> None:
    with serving(tiny_model) as server:
        body = {**BODY, "max_tokens": 1500, "stream": True}
        with httpx.stream("POST", f"{server.url}/v1/chat/completions", json=body, timeout=30.0) as response:
            next(response.iter_lines())
            server.process.send_signal(signal.SIGTERM)
            time.sleep(0.1)
            server.process.send_signal(signal.SIGTERM)
            assert server.process.wait(3.0) is not None


@pytest.mark.kill
def test_sigkill_of_the_parent_takes_everything_with_it(tiny_model: Path) -> None:
    before = leftovers()
    with serving(tiny_model) as server:
        actors = children(server.process.pid)
        assert len(actors) == 4
        port = int(server.url.rsplit(":", 1)[1])
        os.kill(server.process.pid, signal.SIGKILL)
        server.process.wait(2.0)
        deadline = time.monotonic() + 2.0
        while any(Path(f"/proc/{pid}/exe").exists() for pid in actors):
            assert time.monotonic() < deadline, "an actor outlived its parent"
            time.sleep(0.02)
        with socket.socket() as probe:
            assert probe.connect_ex(("127.0.0.1", port)) != 0
    assert_nothing_remains(before)
    with serving(tiny_model) as server:
        assert _ask(server, max_tokens=3).status_code == 200


@pytest.mark.parametrize("streamed", [False, True])
def test_a_client_that_leaves_frees_its_request_at_once(tiny_model: Path, streamed: bool) -> None:
    with serving(tiny_model, "--max-num-seqs", "1") as server:
        host, port = server.url.removeprefix("http://").split(":")
        body = json.dumps({**BODY, "max_tokens": 1900, "stream": streamed}).encode()
        with socket.create_connection((host, int(port))) as client:
            head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
            client.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            time.sleep(0.3)
        begin = time.monotonic()
        assert _ask(server, max_tokens=1).status_code == 200  # the only slot is free again
        assert time.monotonic() - begin < 1.0


def test_port_in_use_is_said_before_anything_loads(tiny_model: Path) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        server = Server([str(tiny_model), "--port", str(holder.getsockname()[1])])
        assert server.process.wait(10.0) == 1
        assert str(os.getpid()) in server.printed
        server.stop()


@pytest.mark.prove(shows="once installed, the demo model is ready within 6 s", limit_s=120)
def test_ready_within_six_seconds(demo_model: Path, proof: Record) -> None:
    times = []
    for _ in range(3):
        begin = time.monotonic()
        with serving(demo_model):
            times.append(time.monotonic() - begin)
    proof(ready_s=[round(seconds, 2) for seconds in times])
    assert sorted(times)[1] <= READY_S_MAX
