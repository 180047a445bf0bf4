from __future__ import annotations

from tokenspeed.engine.meter import Meter
from tokenspeed.messages.detokenizer import PromptTimes
from tokenspeed.messages.engine import OutputDelta

PHASES = ("tokenize", "queue", "prefill", "decode", "inference")


class Time:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


TIMES = PromptTimes(100_250_000, 100_750_000, 101_750_000)


def delta(request: int, finish: str = "") -> OutputDelta:
    return OutputDelta(request, 0, b"", 0, "", finish, None, 50, 32, 1, times=TIMES)


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
    meter.opened(1, 64)
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
    phases = {name: told[f"request_{name}_time_seconds_sum"] for name in PHASES}
    assert phases == {"tokenize": 0.25, "queue": 0.5, "prefill": 1.0, "decode": 2.0, "inference": 3.0}
    assert told["request_params_max_tokens_sum"] == 64
    assert told["request_prompt_tokens_sum"] == 50
    assert told["request_prefill_kv_computed_tokens_sum"] == 18
    assert told["request_generation_tokens_sum"] == 4


def test_errors_are_counted_by_code() -> None:
    meter = Meter()
    for request, code in enumerate(("row_failed", "invalid", "strange")):
        meter.opened(request)
        meter.ended(request, cancelled=False, error=code)
    told = numbers(meter)
    codes = {code: told[f"request_errors_total{code}"] for code in ("row_failed", "invalid", "other", "draining")}
    assert codes == {"row_failed": 1, "invalid": 1, "other": 1, "draining": 0}
    assert told["request_success_totalerror"] == 3


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
