"""Doubts: each is told where it has a reason, and none where there is none."""

from __future__ import annotations

import pytest
from tokenspeed_tools.bench.doubts import doubts
from tokenspeed_tools.bench.raw import Request

from tests.tools.bench import made

TIMES = (0.1, 0.2, 0.3)
GOOD = made.request(0.0, TIMES, prompt_tokens_asked=10, output_tokens_asked=3)
DOUBTFUL = [
    (made.request(0.0, TIMES, error="500: no"), "1 of 1 requests failed"),
    (made.request(0.0, TIMES, client_busy=0.9), "the client was the bottleneck: it was busy for 90%"),
    (made.request(0.0, TIMES, client_lag_s=0.08), "80.0 ms late"),
    (made.request(0.0, TIMES, tokens_from="chunks"), "told no usage"),
    (made.request(0.0, TIMES, prompt_tokens=None), "did not count the prompts"),
    (made.request(0.0, TIMES, cached_tokens=None), "does not tell cached tokens"),
    (made.request(0.0, TIMES, prompt_tokens_asked=20), "prompt tokens: 20 were asked for and 10 seen"),
    (made.request(0.0, TIMES, output_tokens_asked=9), "output tokens: 9 were asked for and 3 seen"),
    (made.request(0.0, TIMES, prompt_tokens=2000, cached_tokens=1900), "has seen these prompts before"),
]


@pytest.mark.parametrize(("request_", "says"), DOUBTFUL, ids=[says for _, says in DOUBTFUL])
def test_a_doubt_is_told(request_: Request, says: str) -> None:
    told = list(doubts(made.run(workload={"prefix_tokens": 0}), [request_]))
    assert len(told) == 1
    assert says in told[0]


def test_a_run_that_was_cut_short_says_so() -> None:
    assert "3 requests were planned and 1 sent" in next(doubts(made.run(workload={"requests_planned": 3}), [GOOD]))


def test_a_good_run_has_none() -> None:
    assert not list(doubts(made.run(workload={"requests_planned": 1, "prefix_tokens": 0}), [GOOD]))
