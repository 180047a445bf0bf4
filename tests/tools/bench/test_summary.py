"""The figures of a run: each formula on numbers that can be worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenspeed_tools.bench.raw import INTERRUPTED, Request, Summary
from tokenspeed_tools.bench.summary import itls_s, quantile, summarise

from tests.tools.bench import made


def figures(*requests: Request, gpus: int = 0) -> Summary:
    return summarise(made.run(gpus=gpus), requests)


def p50(summary: Summary, name: str) -> float:
    value = getattr(summary, name).p50
    assert isinstance(value, float)
    return value


def test_times_of_one_request() -> None:
    summary = figures(made.request(1.0, (1.2, 1.3, 1.5), scheduled_s=0.9))
    assert p50(summary, "ttft_ms") == pytest.approx(200)
    assert p50(summary, "itl_ms") == pytest.approx(150)
    assert p50(summary, "tpot_ms") == pytest.approx(150)
    assert p50(summary, "e2e_ms") == pytest.approx(500)
    assert p50(summary, "late_ms") == pytest.approx(100)
    assert summary.tps_per_user == pytest.approx(6.667)
    assert summary.itl_ms is not None
    assert summary.itl_ms.max == pytest.approx(200)


def test_a_piece_of_several_tokens_shares_its_gap() -> None:
    request = made.request(0.0, (1.0, 1.4), tokens=4)
    assert list(itls_s(request)) == pytest.approx([0.1] * 4)
    assert p50(figures(request), "gap_ms") == pytest.approx(400)
    assert p50(figures(request), "tpot_ms") == pytest.approx(100)


def test_a_piece_without_tokens_lengthens_the_next_gap() -> None:
    request = made.request(0.0, chunks=[(1.0, 1), (1.1, 0), (1.4, 2)], output_tokens=3)
    assert list(itls_s(request)) == pytest.approx([0.2, 0.2])


def test_tokens_a_minute_are_counted_three_ways() -> None:
    summary = figures(made.request(0.0, (1.0, 2.0)), made.request(10.0, (25.0, 30.0)), gpus=2)
    assert summary.duration_s == 30
    assert (summary.prompt_tokens, summary.cached_tokens, summary.output_tokens) == (20, 8, 4)
    assert (summary.tpm_output, summary.tpm_output_and_uncached, summary.tpm_all) == (8, 32, 48)
    assert summary.per_gpu is not None
    assert (summary.per_gpu.tpm_output, summary.per_gpu.tpm_all) == (4, 24)
    assert summary.concurrency_mean == pytest.approx((2 + 20) / 30, abs=1e-3)


def test_a_warm_up_changes_nothing_but_its_count() -> None:
    requests = [made.request(5.0, (6.0, 7.0)), made.request(6.0, (8.0, 9.0))]
    warm = [made.request(0.0, (4.0,), warmup=True), made.request(0.0, warmup=True, error="500: no")]
    alone, both = figures(*requests), figures(*warm, *requests)
    assert both.requests.warmup == 2
    for name in Summary.__struct_fields__:
        if name != "requests":
            assert getattr(alone, name) == getattr(both, name), name


def test_failures_are_counted_by_their_text_and_bring_no_tokens() -> None:
    bad = made.request(0.0, (1.0,), error="500: no")
    summary = figures(made.request(0.0, (2.0,)), bad, bad, made.request(0.0, (9.0,), error=INTERRUPTED))
    counts = summary.requests
    assert (counts.ok, counts.failed, counts.interrupted) == (1, 2, 1)
    assert summary.errors == {"500: no": 2, INTERRUPTED: 1}
    assert (summary.output_tokens, summary.duration_s) == (1, 9)
    assert summary.ttft_ms is not None
    assert summary.ttft_ms.count == 1


def test_turns_are_told_apart() -> None:
    summary = figures(made.request(0.0, (1.0,)), made.request(2.0, (2.5,), turn=2))
    first, second, third = summary.ttft_ms_by_turn
    assert first is not None
    assert third is not None
    assert (first.p50, second, third.p50) == (1000, None, 500)


def test_a_run_without_requests_has_no_figures() -> None:
    summary = figures()
    assert (summary.ttft_ms, summary.tps_per_user, summary.tpm_all, summary.ttft_ms_by_turn) == (None, None, 0, [])


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=40), st.sampled_from([0.5, 0.9, 0.99]))
def test_quantiles_are_those_of_numpy(values: list[float], share: float) -> None:
    assert quantile(sorted(values), share) == pytest.approx(float(np.quantile(values, share)), abs=1e-6)
