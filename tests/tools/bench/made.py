"""Lines of a raw file, made up: a test names only what it is about."""

from __future__ import annotations

from typing import Any

from tokenspeed_tools.bench.raw import ClientInfo, Request, Run, Target, Warmup


def run(**more: Any) -> Run:
    """Return the head of a run of `serve`."""
    fields: dict[str, Any] = {
        "label": "made",
        "started_at": "2026-01-01T00:00:00.000000Z",
        "started_monotonic_ns": 1,
        "command": ["tokenspeed", "bench", "serve"],
        "mode": "serve",
        "workload": {},
        "warmup": Warmup(requests=0, how="none"),
        "target": Target(url="http://host", api="chat", model="m", server="unknown", server_info={}),
        "client": ClientInfo(version="0", python="3", machine="m", cores=2, commit="c"),
        "gpus": 0,
        "notes": {},
    }
    return Run(**fields | more)


def request(sent_s: float = 0.0, times_s: tuple[float, ...] = (), tokens: int = 1, **more: Any) -> Request:
    """Return a good request with a piece of `tokens` at each of `times_s`, which ends with the last one."""
    fields: dict[str, Any] = {
        "index": 0,
        "session": 0,
        "turn": 0,
        "warmup": False,
        "scheduled_s": sent_s,
        "sent_s": sent_s,
        "headers_s": sent_s,
        "first_token_s": times_s[0] if times_s else None,
        "end_s": times_s[-1] if times_s else sent_s,
        "chunks": [(at_s, tokens) for at_s in times_s],
        "tokens_from": "usage",
        "prompt_tokens": 10,
        "cached_tokens": 4,
        "output_tokens": tokens * len(times_s),
        "finish": "length",
        "status": 200,
        "error": None,
        "request_id": None,
    }
    return Request(**fields | more)
