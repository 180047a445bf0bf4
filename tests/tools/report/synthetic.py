"""Runs that no server ever served: written as raw files, by a seed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from tokenspeed_tools.bench.raw import ClientInfo, Request, Run, Target, Warmup
from tokenspeed_tools.bench.summary import summarise


def a_run(label: str = "tokenspeed", **other: Any) -> Run:
    """Return the head of a run; `other` replaces fields."""
    fields: dict[str, Any] = {
        "label": label,
        "started_at": "2026-01-02T03:04:05Z",
        "started_monotonic_ns": 1,
        "command": ["tokenspeed", "bench", "agentic", "--sessions", "8"],
        "mode": "agentic",
        "workload": {"sessions": 8, "turns": 6, "output_tokens": 48, "seed": 1},
        "warmup": Warmup(requests=2, how="the first turn of two sessions"),
        "target": Target(
            url="http://127.0.0.1:8000",
            api="chat",
            model="SmolLM2-135M-Instruct",
            server="tokenspeed 0.1.0",
            server_info={"dtype": "q4_1"},
        ),
        "client": ClientInfo(version="0.1.0", python="3.11.2", machine="a laptop", cores=2, commit="abc1234"),
        "gpus": 0,
        "notes": {},
    }
    return Run(**(fields | other))


def a_request(index: int = 0, sent_s: float = 0.0, tokens: int = 3, pause_s: float = 0.01, **other: Any) -> Request:
    """Return a good request: first token 0.1 s after sending, then one each `pause_s`."""
    first_s = sent_s + other.pop("ttft_s", 0.1)
    chunks = other.pop("chunks", [(round(first_s + pause_s * number, 6), 1) for number in range(tokens)])
    fields: dict[str, Any] = {
        "index": index,
        "session": index,
        "turn": 0,
        "warmup": False,
        "scheduled_s": sent_s,
        "sent_s": sent_s,
        "headers_s": sent_s + 0.001,
        "first_token_s": chunks[0][0] if chunks else None,
        "end_s": chunks[-1][0] if chunks else sent_s + 0.1,
        "chunks": chunks,
        "tokens_from": "usage",
        "prompt_tokens": 100,
        "cached_tokens": 60,
        "output_tokens": sum(count for _, count in chunks),
        "finish": "length",
        "status": 200,
        "error": None,
        "request_id": None,
    }
    return Request(**(fields | other))


def a_session_load(seed: int, sessions: int = 8, turns: int = 6, tokens: int = 48, pace: float = 1.0) -> list[Request]:
    """Return what sessions of several turns might give: a cold first turn, noise, a stall, two warm-ups."""
    chance, found = random.Random(seed), [a_request(-1, warmup=True), a_request(-2, warmup=True)]
    stall_s = 2.0 * pace
    for session in range(sessions):
        at_s = 0.5 + chance.random() * 0.3
        for turn in range(turns):
            sent_s = at_s
            at_s += pace * (0.4 if turn == 0 else 0.05 + 0.01 * turn) * chance.lognormvariate(0, 0.3)
            chunks = []
            for _ in range(tokens):
                if at_s < stall_s < at_s + 0.3:
                    at_s = stall_s + 0.3
                chunks.append((round(at_s, 6), 1))
                at_s += pace * 0.008 * chance.lognormvariate(0, 0.25)
            cached = 0 if turn == 0 else 400 + 80 * turn
            index = session * turns + turn
            found.append(
                a_request(
                    index,
                    sent_s,
                    chunks=chunks,
                    session=session,
                    turn=turn,
                    prompt_tokens=500 + 80 * turn,
                    cached_tokens=cached,
                )
            )
            at_s += 0.1 + 0.1 * chance.random()
    return found


def write(path: Path, runs: Sequence[tuple[Run, Sequence[Request]]], summary: bool = True) -> Path:
    """Write a raw file, with the summary of each run or without."""
    with path.open("wb") as file:
        for run, requests in runs:
            lines = [run, *requests, *([summarise(run, requests)] if summary else [])]
            file.writelines(msgspec.json.encode(line) + b"\n" for line in lines)
    return path


def a_sweep(
    label: str, seed: int, speed: float, gpus: int = 1, loads: Sequence[int] = (1, 2, 4, 8, 16, 32, 64)
) -> list[tuple[Run, list[Request]]]:
    """Return the runs of a sweep over concurrency: throughput grows and flattens, each user gets slower."""
    found = []
    for load in loads:
        pace = (1 + load / 12) / speed
        requests = a_session_load(seed + load, sessions=load, turns=2, tokens=32, pace=pace)
        run = a_run(label, gpus=gpus, mode="serve", workload={"concurrency": load, "output_tokens": 32})
        target = msgspec.structs.replace(run.target, server=label)
        found.append((msgspec.structs.replace(run, target=target), requests))
    return found
