"""Which runs a page has, what they are called, which of their requests count."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenspeed_tools.bench.raw import RawFileError
from tokenspeed_tools.report.shown import apart, load
from tokenspeed_tools.report.warnings import between, warnings

from tests.tools.report.synthetic import a_request, a_run, a_sweep, write

NAME = st.sampled_from(["", "a", "b", "a, b", "a #2", "run"])


def test_runs_of_a_sweep_are_named_by_their_load_and_are_one_engine(tmp_path: Path) -> None:
    ours = write(tmp_path / "ours.jsonl", a_sweep("ours", 1, 1.0, loads=(1, 8)))
    theirs = write(tmp_path / "theirs.jsonl", [(a_run("theirs", mode="serve", workload={"request_rate": 2.5}), [])])
    runs = load([ours, theirs])
    assert [run.name for run in runs] == ["ours, 1 at once", "ours, 8 at once", "theirs"]
    assert [run.engine for run in runs] == ["ours", "ours", "theirs"]
    assert [run.load for run in runs] == ["1", "8", "2.5/s"]
    assert [run.engine_style.index for run in runs] == [0, 0, 1]
    assert between(runs) == ["Not all were asked for as much at once: ours 1, 8; theirs 2.5/s."]


def test_the_same_load_on_another_day_is_named_by_its_file(tmp_path: Path) -> None:
    files = [write(tmp_path / f"{day}.jsonl", [(a_run("ours"), [])]) for day in ("monday", "tuesday")]
    assert [run.name for run in load(files)] == ["ours, monday", "ours, tuesday"]


@given(st.lists(st.tuples(NAME, NAME, NAME)))
def test_names_are_unique(named: list[tuple[str, str, str]]) -> None:
    found = apart(named)
    assert len(set(found)) == len(named)
    assert all(found)


def test_doubts_are_said(tmp_path: Path) -> None:
    requests = [a_request(0), a_request(1, warmup=True), a_request(2, error="reset", chunks=[], status=0)]
    (run,) = load([write(tmp_path / "cut.jsonl", [(a_run(), requests)], summary=False)])
    said = "\n".join(warnings(run))
    for doubt in (
        "1 of 2 requests failed",
        "1 request ended with: reset",
        "no summary of this run: it was cut short",
        "2 requests were declared and 1 sent",
        "p99 of TTFT from 1 request",
    ):
        assert doubt in said
    assert [request.index for request in run.ok] == [0]
    assert [request.index for request in run.counted] == [0, 2]


def test_a_summary_that_its_requests_do_not_give_is_not_believed(tmp_path: Path) -> None:
    path = write(tmp_path / "run.jsonl", [(a_run(), [a_request(0), a_request(1)])])
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:1] + lines[2:]))
    (run,) = load([path])
    assert any("the summary in the file is not what its requests give" in said for said in warnings(run))
    assert run.summary.requests.ok == 1


def test_other_work_and_another_client_are_doubts(tmp_path: Path) -> None:
    one = a_run("one")
    other = a_run("other", workload=one.workload | {"output_tokens": 96})
    assert between(load([write(tmp_path / "both.jsonl", [(one, []), (other, [])])])) == [
        "The workload was not the same where it should be; different: output_tokens."
    ]


def test_a_file_that_is_none_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "no.jsonl"
    path.write_text("{}\n")
    with pytest.raises(RawFileError, match=r"no\.jsonl:1"):
        load([path])
