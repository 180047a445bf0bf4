"""The first table says which run is better, and only where one is."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from tokenspeed_tools.report.compare import Better, Cell, cells, comparison
from tokenspeed_tools.report.shown import load

from tests.tools.report.synthetic import a_request, a_run, write


def test_ratios_are_to_the_first_run_and_the_best_is_marked() -> None:
    assert cells([100.0, 80.0, 250.0], Better.LESS) == [
        Cell("100", "", False),
        Cell("80.0", "0.80× better", True),
        Cell("250", "2.50× worse", False),
    ]
    assert [cell.against for cell in cells([100.0, 80.0], Better.MORE)] == ["", "0.80× worse"]


def test_a_difference_too_small_to_mean_anything_is_none() -> None:
    assert cells([100.0, 100.9], Better.LESS) == [Cell("100", "", False), Cell("101", "same", False)]


def test_what_is_not_known_is_absent_and_never_best() -> None:
    assert cells([None, 5.0, 9.0], Better.LESS) == [
        Cell("–", "", False),
        Cell("5.00", "", True),
        Cell("9.00", "", False),
    ]
    assert [cell.against for cell in cells([0.0, 2.0], Better.LESS)] == ["", "worse"]


@pytest.fixture
def table(tmp_path: Path) -> dict[str, list[str]]:
    """The texts of the table of a whole run and of one whose server counts no input and fails once."""
    whole = [a_request(0, 0.0, tokens=11), a_request(1, 0.5, tokens=11), a_request(9, 0.0, warmup=True, ttft_s=5.0)]
    poor = [
        a_request(0, 0.0, tokens=11, prompt_tokens=None, cached_tokens=None, ttft_s=0.2),
        a_request(1, 0.5, chunks=[], error="HTTP 500", status=500),
    ]
    path = write(tmp_path / "runs.jsonl", [(a_run("whole", gpus=2), whole), (a_run("poor"), poor)])
    return {measure.name: [cell.text for cell in row] for measure, row in comparison(load([path]))}


def test_figures_by_hand(table: dict[str, list[str]]) -> None:
    assert table["TTFT p50"] == ["100", "200"]
    assert table["ITL p99"] == ["10.0", "10.0"]
    assert table["per user, p50"] == ["100", "100"]
    assert table["TPM output"] == ["1,886", "1,100"]  # 22 tokens in 0.7 s; 11 in 0.6 s
    assert table["TPM all"] == ["19,029", "–"]
    assert table["TPM output per GPU"] == ["943", "–"]
    assert table["cached share of input"] == ["60.0", "–"]
    assert table["failed"] == ["0.00", "50.0"]


def test_a_measure_is_the_summary_s(tmp_path: Path) -> None:
    path = write(tmp_path / "one.jsonl", [(a_run(), [a_request(0, tokens=5)])])
    (run,) = load([path])
    told = msgspec.to_builtins(run.recorded.summary)
    table = {measure.name: row[0].text for measure, row in comparison([run])}
    assert table["TTFT p99"] == f"{told['ttft_ms']['p99']:.0f}"
    assert table["longest pause"] == f"{told['gap_ms']['max']:.1f}"
