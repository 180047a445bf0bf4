"""Every door onto one server with a tiny random model: the same tokens, whatever the way in."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.e2e.served import Server, serving
from tokenspeed.client import Client
from tokenspeed.engine.metrics import METRICS

pytestmark = pytest.mark.long

ASKED: dict[str, Any] = {"seed": 7, "max_tokens": 6, "ignore_eos": True}
HELLO = [{"role": "user", "content": "Hello"}]


@pytest.fixture(scope="module")
def server(tiny_model: Path) -> Iterator[Server]:
    with serving(tiny_model) as running:
        yield running


def post(server: Server, path: str, **body: Any) -> Any:
    reply = httpx.post(f"{server.url}{path}", json=body, timeout=30.0)
    assert reply.status_code == 200, reply.text
    return reply.json()


def test_choices_draw_what_single_requests_with_their_seeds_draw(server: Server) -> None:
    told = post(server, "/v1/chat/completions", messages=HELLO, n=3, **ASKED)
    alone = [post(server, "/v1/chat/completions", messages=HELLO, **{**ASKED, "seed": seed}) for seed in (7, 8, 9)]
    assert [choice["message"] for choice in told["choices"]] == [each["choices"][0]["message"] for each in alone]
    assert len({choice["message"]["content"] for choice in told["choices"]}) == 3
    assert told["usage"]["completion_tokens"] == 18
    assert told["usage"]["prompt_tokens"] == alone[0]["usage"]["prompt_tokens"]


def test_text_ids_and_lists_of_either_are_one_prompt(server: Server) -> None:
    ids = post(server, "/tokenize", prompt="The sea")["tokens"]
    assert post(server, "/detokenize", tokens=ids)["prompt"].endswith("The sea")
    whole = post(server, "/v1/completions", prompt=["The sea", ids], echo=True, return_token_ids=True, **ASKED)
    first, second = whole["choices"]
    assert first["text"].startswith("The sea")
    assert first["token_ids"] == second["token_ids"]
    assert first["prompt_token_ids"] == second["prompt_token_ids"] == ids
    settings = {"sampling_seed": 7, "max_new_tokens": 6, "ignore_eos": True}
    told = post(server, "/generate", text=["The sea"], sampling_params=settings)
    assert told[0]["output_ids"] == first["token_ids"]
    assert "The sea" + told[0]["text"] == first["text"]


def test_log_probabilities_agree_and_a_prompt_can_be_scored(server: Server) -> None:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none") as client:
        whole = client.completions.create(model="tiny", prompt="The sea is", echo=True, logprobs=2, max_tokens=0)
        scores = whole.choices[0].logprobs
        assert scores is not None
        assert whole.choices[0].text == "The sea is"
        assert scores.token_logprobs is not None
        assert scores.token_logprobs[0] is None
        assert all(score <= 0 for score in scores.token_logprobs[1:])
        assert len(scores.token_logprobs) == whole.usage.prompt_tokens
        texts, told = ["", ""], [list[float](), list[float]()]
        for chunk in client.chat.completions.create(
            model="tiny",
            messages=[{"role": "user", "content": "Hello"}],
            n=2,
            logprobs=True,
            top_logprobs=1,
            temperature=0,
            max_tokens=6,
            stream=True,
        ):
            for choice in chunk.choices:
                texts[choice.index] += choice.delta.content or ""
                for each in (choice.logprobs.content or ()) if choice.logprobs else ():
                    told[choice.index].append(each.logprob)
                    assert each.logprob == each.top_logprobs[0].logprob  # greedy: the likeliest
        assert texts[0] == texts[1]
        assert told[0] == pytest.approx(told[1], abs=1e-3)  # the two may be computed in different batches
        assert len(told[0]) > 0


def test_metrics_count_what_was_done(server: Server) -> None:
    def numbers() -> dict[str, float]:
        lines = httpx.get(f"{server.url}/metrics").text.splitlines()
        pairs = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
        return {name.replace('{model_name="tiny"}', ""): float(value) for name, value in pairs}

    before = numbers()
    post(server, "/v1/completions", prompt="Once upon a time there was a sea", n=2, **ASKED)
    after = numbers()
    more = {
        name: after[f"tokenspeed:{name}"] - before.get(f"tokenspeed:{name}", 0)
        for name in (
            "generation_tokens_total",
            "time_to_first_token_seconds_count",
            "inter_token_latency_seconds_count",
        )
    }
    assert more == {
        "generation_tokens_total": 12,
        "time_to_first_token_seconds_count": 2,
        "inter_token_latency_seconds_count": 10,
    }
    assert after["tokenspeed:num_requests_running"] == 0
    assert after["tokenspeed:steps_total"] > before["tokenspeed:steps_total"]


def told(server: Server) -> dict[str, list[Any]]:
    """Return the samples of each family, as Prometheus' own parser reads them."""
    families = text_string_to_metric_families(httpx.get(f"{server.url}/metrics").text)
    return {f"{each.name}_total" if each.type == "counter" else each.name: each.samples for each in families}


def test_metrics_under_load_are_the_list_and_their_parts_sum_up(server: Server) -> None:
    asked = {"prompt": "Once upon a time there was a sea", "seed": 7, "max_tokens": 24, "ignore_eos": True}
    with ThreadPoolExecutor(8) as pool:
        replies = [pool.submit(post, server, "/v1/completions", **asked) for _ in range(12)]
        while not all(reply.done() for reply in replies):
            families = told(server)
            assert set(families) == {metric.full_name for metric in METRICS.values()}
            (running,) = families["tokenspeed:num_requests_running"]
            (waiting,) = families["tokenspeed:num_requests_waiting"]
            assert running.value + waiting.value <= 8
    sums = {
        sample.name.removeprefix("tokenspeed:"): sample.value
        for samples in told(server).values()
        for sample in samples
        if not sample.labels.keys() - {"model_name"}
    }
    before = sum(sums[f"request_{phase}_time_seconds_sum"] for phase in ("tokenize", "queue", "prefill"))
    assert sums["num_requests_running"] == sums["num_requests_waiting"] == 0
    assert sums["request_queue_time_seconds_count"] == sums["time_to_first_token_seconds_count"]
    assert 0 < before <= sums["time_to_first_token_seconds_sum"]
    assert before + sums["request_decode_time_seconds_sum"] <= sums["e2e_request_latency_seconds_sum"]
    assert sums["iteration_tokens_total_count"] == sums["steps_total"]
    assert 0 < sums["step_time_seconds_count"] <= sums["steps_total"]


def test_a_request_is_found_by_its_id_over_the_unix_socket(server: Server) -> None:
    body = {"messages": HELLO, "n": 2, **ASKED}
    reply = httpx.post(f"{server.url}/v1/chat/completions", json=body, headers={"x-request-id": "mine"}, timeout=30.0)
    found = re.search(r"\S+\.sock", server.printed)
    assert found is not None
    client = Client(found.group())
    numbers = client.requests("mine")
    assert numbers == client.requests(reply.json()["id"])
    assert numbers[1] == numbers[0] + 1
    assert f"id=mine request={numbers[0]},{numbers[1]}" in server.printed


def test_a_bad_id_is_refused_and_the_next_request_works(server: Server) -> None:
    for path, body, param in (
        ("/v1/completions", {"prompt": [10**6]}, "prompt"),
        ("/generate", {"input_ids": [[5], [10**6]]}, "input_ids"),
        ("/detokenize", {"tokens": [10**6]}, "tokens"),
        ("/v1/chat/completions", {"messages": HELLO, "stop_token_ids": [10**6], "n": 2}, "stop_token_ids"),
        ("/v1/chat/completions", {"messages": HELLO, "logit_bias": {"1000000": 1}}, "logit_bias"),
    ):
        reply = httpx.post(f"{server.url}{path}", json=body)
        assert (reply.status_code, json.loads(reply.text)["error"]["param"]) == (400, param), reply.text
    assert post(server, "/v1/completions", prompt="Hello", max_tokens=1)["choices"][0]["finish_reason"] == "length"
