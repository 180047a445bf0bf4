"""`record` beside a running server: what is in the file is what its clients saw."""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
import sys
import threading
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import httpx
import msgspec
import pytest
from tokenspeed_tools.bench.raw import Request, Run, Summary
from tokenspeed_tools.trace import command
from tokenspeed_tools.trace.live import Snapshot
from tokenspeed_tools.trace.recording import load

from tests.conftest import Record
from tests.e2e.served import Server
from tests.tools.trace.perfetto_file import NO_PROCESSOR, Found, asked, read, trace_processor

pytestmark = pytest.mark.long

ROOT = Path(__file__).resolve().parents[3]
CLIENTS = 4
SESSIONS = 8
APART_MAX = 0.02
QUERIES = re.findall(r"^```sql\n(.*?)^```$", (ROOT / "docs/tracing.md").read_text(), re.MULTILINE | re.DOTALL)


class Recorded(NamedTuple):
    """A file, what is drawn in it, and how many tokens each client asked for and got."""

    path: Path
    found: list[Found]
    tokens: list[int]


async def _stream(client: httpx.AsyncClient, tokens: int) -> None:
    prompt = f"Tell of the number {tokens}."
    body = {"prompt": prompt, "max_tokens": tokens, "ignore_eos": True, "stream": True, "temperature": 0}
    async with client.stream("POST", "/v1/completions", json=body) as answer:
        async for _ in answer.aiter_lines():
            pass


def _load(server: Server, tokens: list[int]) -> None:
    async def all_at_once() -> None:
        async with httpx.AsyncClient(base_url=server.url, timeout=120.0) as client:
            await asyncio.gather(*(_stream(client, each) for each in tokens))

    asyncio.run(all_at_once())


@pytest.fixture(scope="module")
def recorded(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """Record while some clients stream, and end with Ctrl-C, as a user does."""
    path, tokens = tmp_path_factory.mktemp("recorded") / "engine.pftrace", [5 + each for each in range(CLIENTS)]
    with _Recorder(server, path):
        _load(server, tokens)
    return Recorded(path, read(path.read_bytes()), tokens)


class _Recorder:
    """`trace record` as a process; leaving the context is Ctrl-C."""

    def __init__(self, server: Server, path: Path) -> None:
        arguments = ["record", "--engine", str(server.process.pid), "--seconds", "600", "-o", str(path)]
        self._command = [sys.executable, "-m", "tokenspeed_tools.trace", *arguments]

    def __enter__(self) -> None:
        self._process = subprocess.Popen(self._command, stderr=subprocess.PIPE, text=True)
        assert self._process.stderr is not None
        assert "points" in self._process.stderr.readline()  # the first sign of progress

    def __exit__(self, *_: object) -> None:
        self._process.send_signal(signal.SIGINT)
        said = self._process.communicate(timeout=120)[1]
        assert self._process.returncode == 0, said
        assert "lost" not in said


def test_each_request_is_there_with_its_tokens(recorded: Recorded) -> None:
    requests = [each for each in recorded.found if each.name == "request"]
    assert sorted(each.arguments["output_tokens"] for each in requests) == recorded.tokens
    assert {each.arguments["finish"] for each in requests} == {"length"}
    for request in requests:
        own = [each for each in recorded.found if each.track == request.track]
        pieces = [each for each in own if each.name in ("first_token", "token")]
        assert [each.name for each in pieces[:2]] == ["first_token", "token"]
        assert sum(int(each.arguments["tokens"]) for each in pieces) == request.arguments["output_tokens"]
        steps = [int(each.arguments["step"]) for each in pieces]
        assert steps == sorted(set(steps))
        parts = [each for each in own if each.depth == 1 and each not in pieces]
        assert sum(each.end_ns - each.begin_ns for each in parts) == request.end_ns - request.begin_ns


def test_arrows_reach_from_each_request_over_steps_to_tokens(recorded: Recorded) -> None:
    drawn_at: dict[int, set[str]] = {}
    for each in recorded.found:
        for flow in each.flows:
            drawn_at.setdefault(flow, set()).add(each.name)
    first = [each for each in recorded.found if each.name == "first_token"]
    assert len(first) == CLIENTS
    for each in first:
        # The id of the prompt's own step may bring no text yet.
        (at_request,) = drawn_at[each.flows[0]] - {"compute", "first_token"}
        assert at_request in ("prompt computed", "token computed")


def test_every_actor_and_ring_is_drawn(recorded: Recorded) -> None:
    names = {each.name for each in recorded.found}
    assert {"turn", "step", "decode", "send to executor", "receive from executor", "receive from engine"} < names
    fill = [each.value for each in recorded.found if each.track == "scheduler to executor"]
    assert max(fill) > 0
    assert fill[-1] == 0


@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.skipif(trace_processor() is None, reason=NO_PROCESSOR)
def test_a_query_of_the_guide_answers(query: str, recorded: Recorded) -> None:
    with asked(recorded.path) as processor:
        assert list(processor.query(query))


@pytest.mark.skipif(trace_processor() is None, reason=NO_PROCESSOR)
def test_the_trace_processor_finds_nothing_wrong(recorded: Recorded) -> None:
    with asked(recorded.path) as processor:
        wrong = processor.query("select name, value from stats where severity in ('error', 'data_loss') and value > 0")
        assert [(each.name, each.value) for each in wrong] == []
        slices = processor.query("select count(*) as n from slice")
        assert next(iter(slices)).n == sum(1 for each in recorded.found if each.name)


def test_a_file_of_points_and_top(server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    engine = ["--engine", str(server.process.pid)]
    work = threading.Thread(target=_load, args=(server, [30] * 2))
    work.start()
    assert command.main(["top", "--once", "--json", *engine]) == 0
    work.join()
    now = msgspec.json.decode(capsys.readouterr().out, type=Snapshot)
    assert now.pages is not None
    assert now.pages["pages_total"] > 0
    assert sum(now.shares.values()) == pytest.approx(1)
    path = tmp_path / "engine.points"
    assert command.main(["record", "--past", "--seconds", "0.1", "--format", "points", "-o", str(path), *engine]) == 0
    recording = load(path)
    assert recording.topology.pid == server.process.pid
    assert recording.points["scheduler"]
    assert str(path) in capsys.readouterr().err


def test_kernels_are_of_a_gpu(server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--engine", str(server.process.pid), "--seconds", "5", "-o", str(tmp_path / "file"), "--kernels"]
    assert command.main(["record", *arguments]) == 1
    assert "this engine computes on the CPU" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["record", "-o", "nowhere/file"], "nowhere is no folder"),
        (["record", "-o", "file", "--engine", "nowhere"], "neither the process id of an engine nor a control socket"),
        (["recrod"], "unknown command 'recrod' (did you mean record?)"),
    ],
)
def test_what_is_wrong_is_said(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(arguments) in (1, 2)
    assert message in capsys.readouterr().err


@pytest.mark.prove(shows="a recorded file gives the benchmark client's TTFT and ITL within 2%", limit_s=300)
def test_the_file_gives_the_figures_of_the_client(server: Server, tmp_path: Path, proof: Record) -> None:
    path, raw = tmp_path / "engine.pftrace", tmp_path / "raw.jsonl"
    load = ["--concurrency", str(SESSIONS), "--num-prompts", "32", "--input-tokens", "64-256", "--output-tokens", "96"]
    with _Recorder(server, path):
        subprocess.run(
            [sys.executable, "-m", "tokenspeed_tools.bench", "serve", "--base-url", server.url, "--output", raw, *load],
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    run, requests, summary = _raw(raw)
    begin_ns = run.started_monotonic_ns + int(min(each.sent_s for each in requests) * 1e9)
    assert summary.ttft_ms is not None
    assert summary.itl_ms is not None
    figures = {"ttft_ms": summary.ttft_ms.p50, "itl_ms": summary.itl_ms.p50}
    ways = {"drawn": _figures(read(path.read_bytes()), begin_ns)}
    if trace_processor() is not None:
        ways["sql"] = _asked(path, begin_ns)
    proof(requests=len(requests), client=figures, **ways, with_sql=trace_processor() is not None)
    for found in ways.values():
        assert found == pytest.approx(figures, rel=APART_MAX)


def _raw(path: Path) -> tuple[Run, list[Request], Summary]:
    lines: list[Any] = [
        msgspec.json.decode(line, type=Run | Request | Summary) for line in path.read_bytes().splitlines()
    ]
    (run,) = (line for line in lines if isinstance(line, Run))
    (summary,) = (line for line in lines if isinstance(line, Summary))
    return run, [line for line in lines if isinstance(line, Request) and not line.warmup], summary


def _figures(found: list[Found], begin_ns: int) -> dict[str, float]:
    """Return the medians of the requests that came after `begin_ns`, in milliseconds."""
    ttfts, itls = [], []
    for request in (each for each in found if each.name == "request" and each.begin_ns >= begin_ns):
        pieces = [each for each in found if each.track == request.track and each.name in ("first_token", "token")]
        ttfts.append(pieces[0].begin_ns - request.begin_ns)
        for before, after in pairwise(pieces):
            tokens = int(after.arguments["tokens"])
            itls += [(after.begin_ns - before.begin_ns) / tokens] * tokens if tokens else []
    return {"ttft_ms": median(ttfts) / 1e6, "itl_ms": median(itls) / 1e6}


def _asked(path: Path, begin_ns: int) -> dict[str, float]:
    ttft, itl = (query for query in QUERIES if "as ttft_ms" in query or "as itl_ms" in query)
    with asked(path) as processor:
        ttfts = [each.ttft_ms for each in processor.query(ttft) if each.begin_ns >= begin_ns]
        itls = [each.itl_ms for each in processor.query(itl) if each.begin_ns >= begin_ns]
    return {"ttft_ms": median(ttfts), "itl_ms": median(itls)}
