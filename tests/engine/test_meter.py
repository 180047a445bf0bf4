from __future__ import annotations

from tokenspeed.engine.meter import Meter
from tokenspeed.messages.engine import OutputDelta


class Time:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def delta(request: int, finish: str = "") -> OutputDelta:
    return OutputDelta(request, 0, b"", 0, "", finish, None, 50, 32, 1)


def numbers(meter: Meter) -> dict[str, float]:
    return {
        family.name.removeprefix("tokenspeed:") + sample.suffix + "".join(sample.labels.values()): sample.value
        for family in meter.families()
        for sample in family.samples
        if sample.suffix != "_bucket"
    }


def test_everything_is_there_from_the_start() -> None:
    told = numbers(Meter())
    assert set(told.values()) == {0}
    assert {"prompt_tokens_total", "request_success_totalabort", "e2e_request_latency_seconds_count"} <= set(told)


def test_the_times_and_counts_of_one_reply() -> None:
    clock = Time()
    meter = Meter(clock)
    meter.opened(1)
    for at_s, tokens, finish in ((102.0, 1, ""), (103.0, 2, ""), (103.5, 0, ""), (104.0, 1, "stop")):
        clock.now_s = at_s
        meter.output(delta(1, finish), tokens)
    meter.ended(1, cancelled=False)
    told = numbers(meter)
    assert told["time_to_first_token_seconds_sum"] == 2.0
    assert (told["inter_token_latency_seconds_sum"], told["inter_token_latency_seconds_count"]) == (2.0, 3)
    assert round(told["request_time_per_output_token_seconds_sum"], 6) == round(2 / 3, 6)
    assert told["e2e_request_latency_seconds_sum"] == 4.0
    assert (told["prompt_tokens_total"], told["generation_tokens_total"]) == (50, 4)
    assert (told["prefix_cache_queries_total"], told["prefix_cache_hits_total"]) == (50, 32)
    assert told["request_success_totalstop"] == 1


def test_each_request_ends_once() -> None:
    meter = Meter()
    for request, finish, cancelled in ((1, "length", False), (2, "", False), (3, "", True)):
        meter.opened(request)
        meter.output(delta(request, finish), 1)
        meter.ended(request, cancelled=cancelled)
        meter.ended(request, cancelled=cancelled)
    meter.output(delta(9), 1)
    told = numbers(meter)
    ends = [told[f"request_success_total{reason}"] for reason in ("stop", "length", "abort", "error")]
    assert ends == [0, 1, 1, 1]
    assert told["e2e_request_latency_seconds_count"] == 1
