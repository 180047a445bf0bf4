"""`tokenspeed bench` as a whole, against a server that has every habit a server may have."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from tokenspeed_tools.bench import raw
from tokenspeed_tools.bench.command import main
from tokenspeed_tools.bench.summary import summarise

from tests.tools.bench.fake_server import FakeServer, serving

pytestmark = pytest.mark.long

SHORT = "--input-tokens 40 --output-tokens 4 --warmup 1"
AGENT = "--system-tokens 30 --repository-tokens 40 --first-turn-tokens 50 --turn-tokens 40 --output-tokens 4 --warmup 1"
PROBES = 4  # short requests before a run


def bench(server: FakeServer, path: Path, line: str) -> int:
    return main([*line.split(), "--base-url", server.url, "--output", str(path)])


def recorded(path: Path) -> raw.Recorded:
    (run,) = raw.read(path)
    return run


def doubts(run: raw.Recorded) -> list[str]:
    """Return the warnings, but for those that a busy machine may bring into any run."""
    assert run.summary is not None
    return [text for text in run.summary.warnings if not text.startswith("the client was")]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "results" / "raw.jsonl"


def test_serve(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving() as server:
        line = f"serve --concurrency 3 --num-prompts 7 {SHORT} --gpus 2 --note threads=2 --note kv=fp8 --label mine"
        assert bench(server, path, line) == 0
    run = recorded(path)
    assert run.summary == summarise(run.run, run.requests)
    assert run.summary is not None
    assert (run.summary.requests.ok, run.summary.requests.warmup) == (7, 1)
    assert [line.prompt_tokens for line in run.requests[1:]] == [40] * 7
    assert doubts(run) == []
    head = run.run
    assert (head.label, head.gpus, head.notes) == ("mine", 2, {"threads": "2", "kv": "fp8"})
    assert (head.target.server, head.target.model) == ("fakery 7.1", "fake")
    assert head.workload["input_tokens"] == "40"
    assert {"seed", "temperature", "concurrency", "usage", "timeout", "warmup", "arrival"} <= head.workload.keys()
    assert head.command[:3] == ["tokenspeed", "bench", "serve"]
    out, _ = capsys.readouterr()
    assert "7 good; 1 before them to warm up" in out
    assert "note: threads: 2" in out
    assert str(path) in out


def test_at_a_rate_every_request_has_its_time(path: Path) -> None:
    with serving(first_s=0.05) as server:
        line = f"serve --request-rate 100 --arrival constant --num-prompts 6 {SHORT} --api completions"
        assert bench(server, path, line) == 0
        assert "prompt" in server.seen[-1].body
    measured = [line for line in recorded(path).requests if not line.warmup]
    due = sorted(line.scheduled_s for line in measured)
    assert [round(after - due[0], 6) for after in due] == pytest.approx(
        [0.01 * number for number in range(6)], abs=2e-6
    )
    assert all(line.sent_s > line.scheduled_s - 0.002 for line in measured)  # timers count milliseconds


def test_a_session_grows_by_the_replies_that_it_got(path: Path) -> None:
    with serving() as server:
        assert bench(server, path, f"agentic --sessions 2 --turns 3 {AGENT} --think-time 0.01") == 0
        bodies = [seen.body for seen in server.seen if "bench-0-1" in seen.headers["x-session-id"]]
    conversation = bodies[-1]["messages"]
    assert [message["role"] for message in conversation] == ["system", *["user", "assistant"] * 2, "user"]
    assert {message["content"] for message in conversation if message["role"] == "assistant"} == {" so so so so"}
    summary = recorded(path).summary
    assert summary is not None
    assert len(summary.ttft_ms_by_turn) == 3
    assert summary.prompt_tokens == summary.prompt_tokens_asked


def test_turns_behind_a_failed_one_are_counted(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(fails=lambda number: number == PROBES + 2) as server:
        assert bench(server, path, f"agentic --sessions 1 --turns 4 {AGENT.replace('--warmup 1', '--warmup 0')}") == 1
    summary = recorded(path).summary
    assert summary is not None
    assert (summary.requests.ok, summary.requests.failed) == (2, 2)
    assert summary.errors == {"500: out of luck": 1, "not sent: a turn before it failed": 1}
    assert "DOUBT: 2 of 4 requests failed" in capsys.readouterr().out


def test_latency_and_its_line_of_json(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving() as server:
        assert bench(server, path, f"latency --repetitions 3 {SHORT} --json") == 0
    out, err = capsys.readouterr()
    line = json.loads(out)
    assert (line["mode"], line["requests"]["ok"], line["concurrency"]) == ("latency", 3, 1)
    assert "whole reply" in err


def test_a_sweep_is_one_file_of_runs(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving() as server:
        assert bench(server, path, f"sweep serve --concurrency 1,3 {SHORT}") == 0
        texts = [seen.body["messages"][-1]["content"] for seen in server.seen[PROBES:]]
    runs = raw.read(path)
    assert [(run.run.workload["concurrency"], len(run.requests) - 1) for run in runs] == [(1, 4), (3, 12)]
    assert len(set(texts)) == len(texts)
    assert "tok/s/user" in capsys.readouterr().out


def test_a_run_is_a_trace_for_another(path: Path, tmp_path: Path) -> None:
    with serving() as server:
        assert bench(server, path, f"agentic --sessions 2 --turns 2 {AGENT}") == 0
        again = tmp_path / "again.jsonl"
        assert bench(server, again, f"agentic --trace {path} --warmup 0") == 0
    first, second = recorded(path).requests[1:], recorded(again).requests
    for name in ("prompt_tokens", "output_tokens", "turn"):
        assert sorted(getattr(line, name) for line in first) == sorted(getattr(line, name) for line in second)


@pytest.mark.parametrize(
    ("refuses", "note"),
    [
        ({"ignore_eos"}, "client.ignore_eos"),
        ({"stream_options"}, "client.usage"),
        ({"ignore_eos", "stream_options"}, ""),
    ],
)
def test_a_server_that_refuses_fields_is_measured_and_noted(refuses: set[str], note: str, path: Path) -> None:
    with serving(refuses=frozenset(refuses)) as server:
        assert bench(server, path, f"serve --num-prompts 2 {SHORT}") == 0
    run = recorded(path)
    assert note in "".join(run.run.notes)
    assert run.summary is not None
    assert run.summary.output_tokens == 8


def test_a_server_without_usage_is_doubted(path: Path) -> None:
    with serving(usage=False) as server:
        assert bench(server, path, f"serve --num-prompts 2 {SHORT}") == 0
    run = recorded(path)
    assert "client.prompt_tokens" in run.run.notes
    assert run.summary is not None
    assert run.summary.tokens_from == ["chunks"]
    assert len(doubts(run)) == 2


def test_ctrl_c_keeps_what_is_there(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stop: dict[str, Any] = {"on_request": lambda number: os.kill(os.getpid(), signal.SIGINT) if number == 8 else None}
    with serving(first_s=0.02, **stop) as server:
        assert bench(server, path, f"serve --concurrency 2 --num-prompts 50 {SHORT}") == 130
    run = recorded(path)
    assert run.summary is not None
    assert run.summary.requests.interrupted >= 1
    assert run.summary.requests.ok >= 1
    assert "50 requests were planned" in capsys.readouterr().out


def test_a_key_is_sent_and_never_recorded(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    key = tmp_path / "key"
    key.write_text("hush-hush\n")
    monkeypatch.setenv("SOME_KEY", "hush-hush")
    with serving() as server:
        assert bench(server, path, f"serve --num-prompts 1 {SHORT} --api-key-file {key}") == 0
        assert bench(server, tmp_path / "2", f"serve --num-prompts 1 {SHORT} --api-key-env SOME_KEY") == 0
        assert {seen.headers["authorization"] for seen in server.seen} == {"Bearer hush-hush"}
    said = "".join(capsys.readouterr())
    assert "hush" not in path.read_text() + (tmp_path / "2").read_text() + said


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("serve --api-key-env NOT_THERE", "holds no key"),
        ("serve --api-key-file /not/there", "not/there"),
        ("serve --input-tokens 5", "the least is"),
        ("agentic --turns 90", "and the server takes 9999"),
        ("sweep latency", "sweep serve or sweep agentic"),
        ("server", "did you mean serve?"),
    ],
)
def test_what_cannot_be_run_is_refused_and_leaves_no_file(
    line: str, says: str, path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(context_tokens=9999) as server:
        assert bench(server, path, line) == 2
    assert says in capsys.readouterr().err
    assert not path.exists()


def test_a_file_that_exists_is_left_alone(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path.parent.mkdir()
    path.write_text("precious")
    with serving() as server:
        assert bench(server, path, "serve") == 2
    assert path.read_text() == "precious"
    assert "never overwritten" in capsys.readouterr().err


def test_nobody_there_is_said(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--base-url", "http://127.0.0.1:1", "--output", str(path)]) == 1
    assert "Is the server running there?" in capsys.readouterr().err
    assert not path.exists()


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert (main(["--help"]), main([])) == (0, 2)
    assert "sweep" in capsys.readouterr().out
