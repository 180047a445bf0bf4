"""The page of `trace budget`: its rows add up, and the p99 step is told with a reason."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tokenspeed_tools.trace import command
from tokenspeed_tools.trace.account import account_of
from tokenspeed_tools.trace.budget import page, unusual
from tokenspeed_tools.trace.cost import time_points
from tokenspeed_tools.trace.past import Past
from tokenspeed_tools.trace.recording import Recording, save

from tests.tools.trace.histories import Tape, one_request, recorded
from tokenspeed.errors import UserError
from tokenspeed.points import Kind


def _slow_last_step(*during: Kind) -> tuple[Recording, Past]:
    tape = one_request(20)
    tape.open(2)
    tape.plan(21, {}, 1)
    tape.launch(21)
    tape.compute(21, ends=False)
    for kind in during:
        tape.now_ns += 10_000
        tape.note("executor", kind, step=0)
    tape.now_ns += 500_000
    tape.note("executor", Kind.COMPUTE_END, 0, 21)
    recording = recorded(tape.points, tape.now_ns)
    return recording, Past(recording.points, recording.end_ns, recording.topology.edges)


@pytest.mark.parametrize(
    ("during", "reason"),
    [
        ((Kind.GC_BEGIN, Kind.GC_END), "other work on this machine"),  # 11 us explain nothing
        ((Kind.RING_FULL,), "no room in the ring from scheduler to executor"),
        ((Kind.STARTED,), "the executor was started again"),
    ],
)
def test_the_p99_step_has_a_reason(during: tuple[Kind, ...], reason: str) -> None:
    recording, past = _slow_last_step(*during)
    typical = account_of(recording).kinds["decode"]
    assert typical.p99.step.number == 21
    said = unusual(typical, past)
    assert reason in said
    assert "of it in 'compute: sample'" in said


def test_a_collection_that_took_the_time_is_the_reason() -> None:
    tape = one_request(5)
    tape.plan(6, {}, 1)
    tape.launch(6)
    tape.compute(6, ends=False)
    tape.note("executor", Kind.GC_BEGIN)
    tape.now_ns += 400_000
    tape.note("executor", Kind.GC_END)
    tape.note("executor", Kind.COMPUTE_END, 0, 6)
    said = unusual(account_of(recorded(tape.points, tape.now_ns)).kinds["decode"], Past(tape.points, tape.now_ns))
    assert "Python's cycle collector stopped the executor for 401 µs" in said


def test_more_rows_are_a_reason() -> None:
    tape = one_request(5)
    tape.plan(6, {}, 4)
    tape.launch(6)
    tape.now_ns += 400_000
    tape.compute(6)
    said = unusual(account_of(recorded(tape.points, tape.now_ns)).kinds["decode"], Past(tape.points, tape.now_ns))
    assert "it had 4 rows (median 1)" in said


def test_kinds_are_told_apart_and_json_adds_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tape = one_request(20)
    tape.open(2)
    tape.note("scheduler", Kind.ADMITTED, 2)
    tape.plan(21, {2: 512}, 2)
    tape.launch(21)
    tape.compute(21)
    path = tmp_path / "points"
    save(recorded(tape.points, tape.now_ns), path)
    assert command.main(["budget", "--file", str(path)]) == 0
    text = capsys.readouterr().out
    assert "decode only: 19 steps of 1 row;" in text
    assert "decode and prompts: 1 step of 2 rows, 512 prompt tokens" in text
    assert "Accounted for: 100.0%" in text
    assert "hand-over to the device" in text
    assert command.main(["budget", "--file", str(path), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    for each in (told["steps"], told["tokens"], *told["kinds"].values()):
        assert sum(each["median_rows_us"].values()) == pytest.approx(each["median_us"], abs=0.1)
        assert sum(each["p99_rows_us"].values()) == pytest.approx(each["p99_us"], abs=0.1)
    assert told["steps"]["count"] == 20
    assert told["cost"]["native_per_step"] > 2


def test_without_steps_it_says_what_to_do() -> None:
    with pytest.raises(UserError, match="send a request"):
        account_of(recorded(Tape().points, 1))


def test_a_table_of_an_empty_row_is_left_out() -> None:
    recording = recorded(one_request(4).points, 10**9)
    lines = list(page(account_of(recording), Past(recording.points, recording.end_ns)))
    assert not any("waits for a buffer" in line or "other" in line for line in lines)


def test_a_point_is_cheap() -> None:
    native_ns, python_ns = time_points()
    assert 0 < native_ns < python_ns < 20_000
