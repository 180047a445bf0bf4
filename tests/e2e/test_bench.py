"""`tokenspeed bench` against the engine itself: every mode, on one server of a tiny model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tokenspeed_tools.bench import raw
from tokenspeed_tools.bench.command import main

from tests.e2e.served import Server, serving

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def server(tiny_model: Path) -> Iterator[Server]:
    with serving(tiny_model) as running:
        yield running


@pytest.mark.parametrize(
    ("line", "requests"),
    [
        ("serve --concurrency 4 --num-prompts 8 --input-tokens 60-120 --prefix-tokens 32", 8),
        ("serve --request-rate 50 --num-prompts 8 --input-tokens 60 --api completions --usage each", 8),
        ("agentic --sessions 3 --turns 3 --system-tokens 64 --repository-tokens 128 --first-turn-tokens 64", 9),
        ("latency --repetitions 3 --input-tokens 100", 3),
        ("sweep agentic --concurrency 1,2 --turns 2 --first-turn-tokens 64 --think-time exp:0.01", 6),
    ],
)
def test_a_mode(line: str, requests: int, server: Server, tmp_path: Path) -> None:
    path = tmp_path / "raw.jsonl"
    lengths = f"--output-tokens 8{' --turn-tokens 40-60' if 'agentic' in line else ''}"
    assert main([*line.split(), *lengths.split(), "--base-url", server.url, "--output", str(path)]) == 0
    runs = raw.read(path)
    measured = [request for run in runs for request in run.requests if not request.warmup]
    assert len(measured) == requests
    assert {request.output_tokens for request in measured} == {8}
    assert all(request.prompt_tokens == request.prompt_tokens_asked for request in measured)
    assert all(run.run.target.server.startswith("tokenspeed") for run in runs)
    if "agentic" in line:
        later = [request for request in measured if request.turn]
        assert all((request.cached_tokens or 0) > 0 for request in later)
