"""The demo model end to end through HTTP, by the traffic of `bench_cpu`.

A fresh engine serves each round, so that no round finds another's prompts in the cache: streaming
requests at 1, 4 and 16 at once, and a conversation of six turns.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

from tokenspeed_tools.bench.client import Client
from tokenspeed_tools.bench_cpu import traffic
from tokenspeed_tools.bench_cpu.engines import Running
from tokenspeed_tools.bench_suite.model import demo_model, own_engine
from tokenspeed_tools.bench_suite.part import Kind, Measure, Part, Sizes, Values, rate_of, time_of

CONCURRENCIES = (1, 4, 16)


@contextlib.contextmanager
def prepare(sizes: Sizes) -> Iterator[Measure]:
    """Find the demo model."""
    model = demo_model()

    def measure(number: int) -> Values:
        with own_engine(model) as running:
            return asyncio.run(served(running, sizes))

    yield measure


async def served(running: Running, sizes: Sizes) -> Values:
    """Return the figures of one engine."""
    values: dict[str, float] = {}
    with contextlib.closing(Client(running.url)) as client:
        for concurrency in CONCURRENCIES:
            requests = sizes[f"requests_{concurrency}"]
            crowd = await traffic.crowd(client, running.model, concurrency, requests, sizes["new_tokens"])
            values[f"ttft_ms_p50_{concurrency}"] = crowd["ttft_ms_p50"]
            values[f"tpot_ms_p50_{concurrency}"] = crowd["tpot_ms_p50"]
            values[f"tokens_per_s_{concurrency}"] = crowd["tokens_per_s"]
        session = await traffic.session(client, running.model)
    return {**values, "session_first_ttft_ms": session["ttft_ms"][0], "session_later_ttft_ms": session["ttft_ms_p50"]}


def _figures() -> dict[str, Kind]:
    kinds = {}
    for concurrency in CONCURRENCIES:
        kinds[f"ttft_ms_p50_{concurrency}"] = time_of("ms", "work")
        kinds[f"tpot_ms_p50_{concurrency}"] = time_of("ms", "work")
        kinds[f"tokens_per_s_{concurrency}"] = rate_of("tokens/s", "work")
    return {
        **kinds,
        "session_first_ttft_ms": time_of("ms", "work"),
        "session_later_ttft_ms": time_of("ms", "work"),
    }


PART = Part(
    name="demo",
    shows="the demo model through HTTP: TTFT, TPOT and tokens/s at 1, 4 and 16 at once, a session of six turns",
    about_s=90,
    rounds=3,
    sizes={"requests_1": 3, "requests_4": 8, "requests_16": 16, "new_tokens": 64, "turns": traffic.TURNS},
    figures=_figures(),
    prepare=prepare,
)
