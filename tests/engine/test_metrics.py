"""The list of metrics is a contract."""

from __future__ import annotations

from pathlib import Path

import pytest
from tokenspeed_tools.metrics import frozen, main, page

from tokenspeed.engine.exposition import Histogram
from tokenspeed.engine.metrics import GROUPS, METRICS, PREFIX, Label, Metric, common_with_vllm

REPOSITORY = Path(__file__).resolve().parents[2]
FROZEN = Path(__file__).with_name("metrics.txt")
CONTRACT = (
    "names, kinds, labels and their values are what dashboards and autoscalers are built on: put back what is missing "
    f"or differs; only what is new is added to {FROZEN.name}"
)


def test_what_was_promised_is_there() -> None:
    assert set(FROZEN.read_text().splitlines()) - set(frozen()) == set(), CONTRACT
    assert set(frozen()) - set(FROZEN.read_text().splitlines()) == set(), f"new: add it to {FROZEN}"


def test_the_page_is_current(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    document = (REPOSITORY / "docs/metrics.md").read_text()
    assert page(document) == document, "run python -m tokenspeed_tools.metrics"
    copy = tmp_path / "metrics.md"
    copy.write_text(document.replace("| counter |", "| gauge |"))
    monkeypatch.setattr("sys.argv", ["metrics", str(copy)])
    main()
    assert copy.read_text() == document


def test_names_are_formed_as_those_of_prometheus() -> None:
    assert len(METRICS) == sum(len(group.metrics) for group in GROUPS)
    for metric in METRICS.values():
        if metric.kind != "histogram":  # iteration_tokens_total is one: the name is vLLM's
            assert (metric.kind == "counter") == metric.name.endswith("_total"), metric.name
        assert (metric.kind == "histogram") == bool(metric.bounds), metric.name
        assert list(metric.bounds) == sorted(set(metric.bounds)), metric.name
        assert not {label.name for label in metric.labels} & {"le", "model_name"}, metric.name
        assert metric.help.endswith("."), metric.name


def test_every_closed_value_is_told_with_zero() -> None:
    metric = Metric("x_total", "counter", "X.", labels=(Label("a", ("1", "2")), Label("b", ("3", "4"))))
    told = {tuple(sample.labels.values()): sample.value for sample in metric.each({("1", "4"): 7}).samples}
    assert told == {("1", "3"): 0, ("1", "4"): 7, ("2", "3"): 0, ("2", "4"): 0}
    opened = Metric("y_info", "gauge", "Y.", labels=(Label("version", means="any"),))
    assert [dict(sample.labels) for sample in opened.each({("2",): 1}).samples] == [{"version": "2"}]


def test_only_what_means_the_same_gets_vllms_name() -> None:
    assert common_with_vllm(METRICS["num_requests_waiting"].one(1))
    assert not common_with_vllm(METRICS["retractions_total"].each({}))
    assert METRICS["steps_total"].one(1).name == f"{PREFIX}steps_total"


def test_a_histogram_goes_on_with_counts_from_elsewhere() -> None:
    samples = METRICS["iteration_tokens_total"].observed(Histogram((1, 2), (3, 0, 4), 50.0)).samples
    assert [sample.value for sample in samples] == [3, 3, 7, 50.0, 7]
