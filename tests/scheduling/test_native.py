"""What the native fuzzer and the native bench show. Long: `make prove` only."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

NATIVE_TESTS = Path(__file__).parents[2] / "native" / "tests"
EVENTS = 200_000
# Median microseconds of a plan, with pages of 64 and prompts of 2,048 tokens.
PLAN_US_MAX = {64: 30, 256: 150}


def made(*targets: str) -> str:
    """Return what `make` says in native/tests; fail if it fails."""
    command = ["make", "-C", str(NATIVE_TESTS), "-j2", "--no-print-directory", *targets]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


@pytest.mark.prove(shows="200,000 random events, page classes audited after each, sanitizers clean", limit_s=900)
def test_fuzz(proof: Callable[..., None]) -> None:
    lines = made("fuzz-scheduler", f"EVENTS={EVENTS}").splitlines()
    (first,) = (line for line in lines if line.startswith("first seed "))
    (totals,) = (line for line in lines if " retractions" in line)
    proof(events=EVENTS, first_seed=int(first.split()[-1]), totals=totals)


@pytest.mark.prove(shows="the fuzzer catches one planted bug of each class", limit_s=1500)
def test_planted_bugs(proof: Callable[..., None]) -> None:
    caught = [line for line in made("plants-scheduler").splitlines() if ": " in line and not line.startswith("make")]
    assert len(caught) >= 20
    assert not any("NOT CAUGHT" in line for line in caught)
    proof(caught=len(caught))


@pytest.mark.prove(shows="a decode step of 64 rows is planned in 30 us, of 256 in 150", limit_s=600)
def test_plan_cost(proof: Callable[..., None]) -> None:
    series = [json.loads(line) for line in made("bench-scheduler").splitlines() if line.startswith("{")]
    short = {line["rows"]: line for line in series if line["prompt_tokens"] == 2048 and not line["waiting"]}
    long = {line["rows"]: line for line in series if line["prompt_tokens"] == 8192}
    for rows, limit_us in PLAN_US_MAX.items():
        assert short[rows]["plan_us_p50"] < limit_us
        # The cost goes with the rows, not with the pages that they hold.
        assert long[rows]["plan_us_p50"] < 4 * short[rows]["plan_us_p50"] + 5
        proof(rows=rows, plan_us_p50=short[rows]["plan_us_p50"], result_us_p50=short[rows]["result_us_p50"])
