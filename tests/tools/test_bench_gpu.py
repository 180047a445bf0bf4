"""The benchmark of the engine: its arithmetic against a clock of its own, and one small run of everything."""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tokenspeed_tools.bench_gpu import measure
from tokenspeed_tools.bench_gpu.command import contexts, grid, main
from tokenspeed_tools.bench_gpu.machine import commit, said
from tokenspeed_tools.bench_gpu.measure import FIRST_ID, LONG_TOKENS, SHORT_TOKENS, Meter, Point
from tokenspeed_tools.bench_gpu.shapes import SHAPES, write_shape

from tokenspeed.formats.checkpoint import describe
from tokenspeed.messages.base import unpack_ids
from tokenspeed.messages.tokenizer import Ids
from tokenspeed.sampling import SamplingParams

VOCAB = 1000


class ClockedEngine:
    """Replies at once, while its clock goes on 1 ms for a prompt's token and 10 ms for a step of decoding."""

    checkpoint = SimpleNamespace(vocab_tokens=VOCAB)

    def __init__(self, lost_tokens: int = 0) -> None:
        self.now_s = 0.0
        self.prompts: list[list[int]] = []
        self.sampling: list[SamplingParams] = []
        self._lost = lost_tokens
        self._batch_ends_s = 0.0

    async def generate(self, prompt: Ids, sampling: SamplingParams) -> AsyncIterator[Any]:
        ids = unpack_ids(prompt.ids)
        self.prompts.append(ids)
        self.sampling.append(sampling)
        assert sampling.max_tokens is not None
        ends_s = self.now_s + len(ids) * 0.001 + (sampling.max_tokens - 1) * 0.01
        yield SimpleNamespace(ids=[5])
        await asyncio.sleep(0)  # all of a batch begin before one ends
        self.now_s = max(self.now_s, ends_s)
        yield SimpleNamespace(ids=[5] * (sampling.max_tokens - 1 - self._lost))


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> ClockedEngine:
    engine = ClockedEngine()
    monkeypatch.setattr("time.perf_counter", lambda: engine.now_s)
    return engine


def meter(engine: ClockedEngine) -> Meter:
    return Meter(engine, 1, lambda text: None)  # type: ignore[arg-type]


def test_the_prompts_own_time_cancels(engine: ClockedEngine) -> None:
    assert asyncio.run(meter(engine).tpot_ms(Point(3, 50))) == pytest.approx(10.0)
    assert len(engine.prompts) == 3 * (1 + 2 + 2)
    assert {sampling.max_tokens for sampling in engine.sampling} == {SHORT_TOKENS, LONG_TOKENS}
    assert all(sampling.ignore_eos and sampling.temperature == 0.0 for sampling in engine.sampling)


def test_the_first_token_has_the_prompts_time(engine: ClockedEngine) -> None:
    assert asyncio.run(meter(engine).ttft_ms(70)) == pytest.approx(70.0)


def test_prompts_are_fresh_and_seeded(engine: ClockedEngine) -> None:
    asyncio.run(meter(engine).ttft_ms(20))
    first, engine.prompts = engine.prompts, []
    asyncio.run(meter(engine).ttft_ms(20))
    assert engine.prompts == first
    assert len({tuple(prompt) for prompt in first}) == len(first) == 4
    assert all(FIRST_ID <= token < VOCAB for prompt in first for token in prompt)


def test_a_reply_that_is_cut_short_counts_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RuntimeError, match=r"\[15\] tokens came, 17 were asked for"):
        asyncio.run(meter(ClockedEngine(lost_tokens=2)).tpot_ms(Point(1, 4)))


def test_lists_of_places_and_lengths() -> None:
    assert grid("1x1024,8x32768") == ((1, 1024), (8, 32768))
    assert not grid("")
    assert not contexts("")
    assert contexts("8192,4") == (8192, 4)
    for read, text in ((grid, "1x"), (grid, "7"), (contexts, "a")):
        with pytest.raises(argparse.ArgumentTypeError):
            read(text)


@pytest.mark.parametrize("name", sorted(SHAPES))
def test_shapes_are_models_that_can_be_described(tmp_path: Path, name: str) -> None:
    folder = write_shape(tmp_path / "model", name, layers=3)
    found = describe(folder, dummy=True)
    assert (found.layers, found.vocab_tokens) == (3, SHAPES[name]["vocab_size"])
    assert describe(write_shape(folder, name), dummy=True).layers == SHAPES[name]["num_hidden_layers"]


def test_a_small_run_of_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(measure, "SHORT_TOKENS", 2)
    monkeypatch.setattr(measure, "LONG_TOKENS", 6)
    path = tmp_path / "lines.jsonl"
    path.write_text('{"kind": "older"}\n')
    words = "--shape tiny --layers 1 --device cpu --grid 1x20,3x40 --ttft 50 --commit abc --json"
    assert main([*words.split(), str(path)]) == 0
    older, start, *decodes, ttft = map(json.loads, path.read_text().splitlines())
    assert older == {"kind": "older"}
    assert [line["kind"] for line in (start, *decodes, ttft)] == ["start", "decode", "decode", "ttft"]
    for line in (start, *decodes, ttft):
        assert (line["engine"], line["shape"], line["layers"], line["dtype"]) == ("tokenspeed", "tiny", 1, "int8")
        assert (line["commit"], "cores" in line["device"]) == ("abc", True)
    assert start["start_s"] > 0
    assert [(line["batch"], line["context_tokens"]) for line in decodes] == [(1, 20), (3, 40)]
    assert all(line["tpot_ms"] < 1000 for line in decodes)
    assert 0 < ttft["ttft_ms"] < 10_000
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == [start, *decodes, ttft]


def test_what_would_not_run_at_once_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--shape", "tiny", "--device", "cpu", "--grid", "5x20", "--max-num-seqs", "4"]) == 1
    assert "at most 4 requests" in capsys.readouterr().err


def test_without_git_the_commit_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    assert said("no-such-command-here") == ""
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    assert commit() == "unknown"
