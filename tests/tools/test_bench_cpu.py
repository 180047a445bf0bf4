"""The CPU benchmark: one round against an engine of a tiny model, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tokenspeed_tools.bench_cpu import traffic
from tokenspeed_tools.bench_cpu.command import main, table

from tests.tiny import write_tiny_model


@pytest.mark.long
def test_one_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(traffic, "NEW_TOKENS", 4)
    monkeypatch.setattr(traffic, "TURNS", 2)
    monkeypatch.setitem(traffic.REQUESTS, 4, 5)
    model = write_tiny_model(tmp_path / "tiny.gguf")
    out = tmp_path / "lines.jsonl"
    asked = ["--engine", "tokenspeed", "--model", str(model), "--concurrency", "4", "--json", str(out)]
    assert main([*asked, "--log", str(tmp_path / "log")]) == 0, (tmp_path / "log").read_text()
    start, crowd, session = map(json.loads, out.read_text().splitlines())
    assert [line["kind"] for line in (start, crowd, session)] == ["start", "crowd", "session"]
    assert (crowd["concurrency"], crowd["new_tokens"]) == (4, 4)
    assert crowd["ttft_ms_p50"] > 0 < crowd["tokens_per_s"]
    assert len(session["ttft_ms"]) == 2
    assert session["prompt_tokens"][1] > session["prompt_tokens"][0]
    assert "tokenspeed" in table([crowd, session])
    assert str(session["ttft_ms"]) in capsys.readouterr().err


def test_an_engine_that_ends_at_once_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["--engine", "broken=false {model} {port}", "--model", str(tmp_path), "--log", str(tmp_path / "log")]
    assert main(asked) == 1
    assert "broken failed: it ended with status 1" in capsys.readouterr().err


def test_a_name_without_a_command_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--engine", "nobody", "--model", str(tmp_path)]) == 2
    assert "nobody is not known" in capsys.readouterr().err
