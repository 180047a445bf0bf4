"""The pages of `trace explain`, and what it says of requests that it does not know, or not wholly."""

from __future__ import annotations

from pathlib import Path

import pytest
from tokenspeed_tools.trace import command
from tokenspeed_tools.trace.recording import save

from tests.tools.trace.histories import Points, one_request, recorded
from tokenspeed.client import Client
from tokenspeed.points import Kind


def _explain(points: Points, tmp_path: Path, *arguments: str) -> int:
    path = tmp_path / "points"
    save(recorded(points, 10**9), path)
    return command.main(["explain", "--file", str(path), *arguments])


def test_a_life_is_told_from_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _explain(one_request(3).points, tmp_path, "--request", "1") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("request 1 ended at its token limit after ")
    assert lines[1].startswith("  100 prompt tokens, 16 of them cached; 3 tokens out; the first after ")
    assert any("84 tokens of the prompt computed in step 1; first token" in line for line in lines)
    assert any("2 tokens computed in 2 steps" in line for line in lines)
    assert not any("overwritten" in line or "buffers" in line for line in lines)


def test_all_requests_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tape = one_request(3)
    tape.open(2)
    assert _explain(tape.points, tmp_path, "--all") == 0
    first, second = capsys.readouterr().out.splitlines()[1:]
    assert first.split()[:5] == ["1", "length", "100", "16", "3"]
    assert second.split()[:2] == ["2", "open"]
    assert second.endswith("waited for admission")


def test_what_is_gone_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    points = one_request(3).points
    kept = {actor: [p for p in each if p.step > 1 or p.time_ns > 1_060_000] for actor, each in points.items()}
    assert _explain(kept, tmp_path, "--request", "1") == 0
    text = capsys.readouterr().out
    assert "Its beginning is no longer in the buffers" in text
    assert "Older points of" in text
    assert _explain(points, tmp_path, "--request", "7") == 1
    assert "Nothing is known of request 7: the points go back" in capsys.readouterr().err
    assert _explain({"scheduler": []}, tmp_path, "--request", "7") == 1
    assert "there is no point of any request" in capsys.readouterr().err


def test_another_id_needs_a_running_server(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    socket = tmp_path / "no.sock"
    assert _explain(one_request(1).points, tmp_path, "--request", "chatcmpl-1", "--socket", str(socket)) == 1
    assert f"'chatcmpl-1' is no number, and no server at {socket}" in capsys.readouterr().err


def test_the_server_knows_the_numbers_of_other_ids(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    socket = tmp_path / "a.sock"
    socket.touch()
    asked: list[tuple[str, object]] = []

    def call(client: Client, path: str, body: object) -> tuple[int, dict[str, list[int]]]:
        asked.append((path, body))
        return 200, {"requests": [1]}

    monkeypatch.setattr(Client, "call", call)
    assert _explain(one_request(1).points, tmp_path, "--request", "chatcmpl-1", "--socket", str(socket)) == 0
    assert asked == [("/requests", {"id": "chatcmpl-1"})]
    assert capsys.readouterr().out.startswith("request 1 ended")


def test_a_prompt_of_many_parts_is_told_in_few_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tape = one_request(1)
    tape.open(2, 2000)
    tape.note("scheduler", Kind.ADMITTED, 2)
    for step in range(2, 22):
        tape.plan(step, {2: 100}, 1)
        tape.launch(step)
        tape.compute(step)
    assert _explain(tape.points, tmp_path, "--request", "2") == 0
    text = capsys.readouterr().out
    assert "1,600 tokens of the prompt computed in 16 steps" in text
    assert text.count("of the prompt computed in step ") == 4
