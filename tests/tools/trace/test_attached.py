"""A running server explains what it has done: its times are the client's, and every step is accounted for."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from statistics import median
from typing import NamedTuple

import httpx
import msgspec
import pytest
from tokenspeed_tools.trace import command
from tokenspeed_tools.trace.account import Account, account_of
from tokenspeed_tools.trace.critical import OTHER
from tokenspeed_tools.trace.engines import find_engine
from tokenspeed_tools.trace.past import Past
from tokenspeed_tools.trace.recording import Recording, record

from tests.conftest import Record
from tests.e2e.served import Server

pytestmark = pytest.mark.long

CLIENTS = 8
ACCOUNTED_MIN = 0.97
APART_NS = 300_000_000  # a client on a busy machine is late by so much at most
TEXT = "Tell at length what number {} means to you. "


class Heard(NamedTuple):
    """What a client measured, in ns of the monotonic clock. `tokens` is how many it asked for."""

    tokens: int
    sent_ns: int
    first_ns: int
    end_ns: int


class Visit(NamedTuple):
    """What clients measured, first one alone, then several at once, and what the engine's buffers held."""

    heard: list[Heard]
    alone_until_ns: int
    recording: Recording


@pytest.fixture(scope="module")
def visit(server: Server) -> Visit:
    """Let clients ask, then look at what the engine remembers."""
    return asyncio.run(_visit(server, 6))


async def _visit(server: Server, tokens: int) -> Visit:
    async with httpx.AsyncClient(timeout=120.0, base_url=server.url) as client:
        alone = await _ask(client, tokens)
        until = time.monotonic_ns()
        together = await asyncio.gather(*(_ask(client, tokens + each) for each in range(1, CLIENTS + 1)))
    return Visit([alone, *together], until, record(_control(server), 0.0, past=True))


async def _ask(client: httpx.AsyncClient, tokens: int) -> Heard:
    body = {"prompt": TEXT.format(tokens), "max_tokens": tokens, "ignore_eos": True, "stream": True, "temperature": 0}
    sent, first = time.monotonic_ns(), 0
    async with client.stream("POST", "/v1/completions", json=body) as answer:
        async for line in answer.aiter_lines():
            if not first and line.startswith("data: {"):
                first = time.monotonic_ns()
    return Heard(tokens, sent, first, time.monotonic_ns())


def _control(server: Server) -> Path:
    return find_engine(str(server.process.pid))


def _part(recording: Recording, begin_ns: int, end_ns: int) -> Account:
    points = {
        actor: [point for point in each if begin_ns <= point.time_ns < end_ns]
        for actor, each in recording.points.items()
    }
    return account_of(msgspec.structs.replace(recording, points=points))


def _accounts(visit: Visit) -> tuple[Account, Account]:
    """Return the accounts of the steps with one client and with several."""
    recording = visit.recording
    alone = _part(recording, visit.heard[0].sent_ns, visit.alone_until_ns)
    return alone, _part(recording, visit.alone_until_ns, recording.end_ns)


def test_a_life_is_what_the_client_measured(visit: Visit) -> None:
    past = Past(visit.recording.points, visit.recording.end_ns)
    lives = {life.output_tokens: life for request in past.requests if (life := past.life(request))}
    for heard in visit.heard:
        life = lives[heard.tokens]
        assert sum(part.ns for part in life.parts) == life.e2e_ns
        assert life.first_ns is not None
        assert heard.sent_ns <= life.begin_ns <= heard.sent_ns + APART_NS
        assert abs(heard.first_ns - life.first_ns) <= APART_NS
        assert abs(heard.end_ns - life.end_ns) <= APART_NS
        assert life.is_whole
        assert past.missing(life) == []


def test_every_step_is_accounted_for(visit: Visit) -> None:
    for account in _accounts(visit):
        assert account.steps.accounted >= ACCOUNTED_MIN
        assert account.steps.count >= visit.heard[0].tokens - 2
        assert account.tokens is not None


def test_the_commands_answer_about_a_running_engine(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    engine = ("--engine", str(server.process.pid))
    httpx.post(f"{server.url}/v1/completions", json={"prompt": "Hello", "max_tokens": 3}, timeout=60.0)
    assert command.main(["explain", "--all", *engine]) == 0
    newest = capsys.readouterr().out.splitlines()[-1].split()[0]
    assert command.main(["explain", "--request", newest, *engine]) == 0
    assert f"request {newest} ended" in capsys.readouterr().out
    assert command.main(["budget", *engine]) == 0
    assert "decode only" in capsys.readouterr().out


@pytest.mark.prove(shows="97% of a step's time has a name, with one client and with eight", limit_s=300)
def test_the_budget_is_complete(server: Server, proof: Record) -> None:
    visit = asyncio.run(_visit(server, 100))
    for clients, account in zip((1, CLIENTS), _accounts(visit), strict=True):
        rows = {**account.steps.median_rows, OTHER: account.steps.median_rows.get(OTHER, 0.0)}
        proof(
            clients=clients,
            steps=account.steps.count,
            rows=median(each.step.rows for each in account.steps.wholes),
            step_us_median=round(account.steps.median_ns / 1e3),
            step_us_p99=round(account.steps.p99_ns / 1e3),
            accounted=round(account.steps.accounted, 4),
            other=round(rows[OTHER] / account.steps.median_ns, 4),
            points_per_step=round(account.cost.native_per_step + account.cost.python_per_step, 1),
            point_ns_native=round(account.cost.native_ns),
            point_ns_python=round(account.cost.python_ns),
            points_share=round(account.cost.step_ns / account.steps.median_ns, 6),
        )
        assert account.steps.accounted >= ACCOUNTED_MIN
        assert all(typical.accounted >= ACCOUNTED_MIN for typical in account.kinds.values())
