"""Loads: what an option means in tokens and seconds, what is shared, and that a seed gives the same again."""

from __future__ import annotations

import argparse
import asyncio
import json
import random
from pathlib import Path

import pytest
from tokenspeed_tools.bench import agentic, latency, raw, serve
from tokenspeed_tools.bench.asking import Asking, as_text, simpler
from tokenspeed_tools.bench.plan import Message, Plan, PlanError, arrivals, user
from tokenspeed_tools.bench.spans import span, wait
from tokenspeed_tools.bench.summary import summarise
from tokenspeed_tools.bench.words import WORDS, Calibration, calibrate

from tests.tools.bench import made
from tests.tools.bench.fake_server import AROUND, prompt_tokens
from tokenspeed.cli.parser import Parser

CHAT = Calibration(word=1.0, first=AROUND, turn=2 * AROUND, seen=True)


def planned(load: object, line: str = "", calibration: Calibration = CHAT, seed: int = 0) -> Plan:
    reader = Parser("test", "")
    for add in ("add_pace", "add_options"):
        getattr(load, add)(reader)
    options = reader.read(line.split())
    options.seed = seed
    made_: Plan = load.plan(options, calibration)  # type: ignore[attr-defined]
    return made_


def tokens(messages: list[Message]) -> int:
    return prompt_tokens({"messages": messages})


def test_random_prompts_have_the_tokens_asked_for_and_share_the_prefix_alone() -> None:
    plan = planned(serve, "--num-prompts 5 --input-tokens 60-80 --prefix-tokens 20 --output-tokens 7")
    turns = [session.turns[0] for session in plan.sessions]
    assert [tokens(turn.messages) for turn in turns] == [turn.prompt_tokens for turn in turns]
    assert {turn.output_tokens for turn in turns} == {7}
    texts = [turn.messages[0]["content"].split() for turn in turns]
    assert len({tuple(words[:20]) for words in texts}) == 1
    assert len({tuple(words[20:24]) for words in texts}) == 5
    assert plan.at_once == 4


def test_a_seed_and_a_concurrency_name_their_prompts() -> None:
    first = planned(serve, "--num-prompts 4")
    assert planned(serve, "--num-prompts 4") == first
    assert planned(serve, "--num-prompts 4", seed=1).sessions != first.sessions
    assert planned(serve, "--num-prompts 4 --concurrency 8").sessions != first.sessions


def test_a_rate_gives_each_request_its_time() -> None:
    plan = planned(serve, "--num-prompts 400 --request-rate 10")
    starts = [session.at_s or 0.0 for session in plan.sessions]
    assert plan.at_once is None
    assert starts == sorted(starts)
    assert 30 < starts[-1] < 50
    assert arrivals(random.Random(0), 4, "constant", 3) == [0.0, 0.25, 0.5]


def test_prompts_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"prompt": "a b", "output_tokens": 3}\n\n{"messages": [{"role": "user", "content": "c"}]}\n')
    first, second = planned(serve, f"--prompts {path} --output-tokens 9").sessions
    assert (first.turns[0].messages, first.turns[0].output_tokens) == ([user("a b")], 3)
    assert (second.turns[0].messages, second.turns[0].output_tokens) == ([user("c")], 9)
    with pytest.raises(PlanError, match="has 2 prompts"):
        planned(serve, f"--prompts {path} --num-prompts 3")
    path.write_text("{}\n")
    with pytest.raises(PlanError, match="one is needed"):
        planned(serve, f"--prompts {path}")
    with pytest.raises(PlanError, match="cannot read"):
        planned(serve, f"--prompts {path}.not")


def test_a_prompt_shorter_than_its_template_is_refused() -> None:
    with pytest.raises(PlanError, match="the least is 11"):
        planned(serve, "--input-tokens 10")
    with pytest.raises(PlanError, match="the least is 21"):
        planned(agentic, "--turn-tokens 20")
    with pytest.raises(PlanError, match="the least is 11"):
        planned(agentic, "--first-turn-tokens 10")


def test_sessions_share_system_and_repository_alone() -> None:
    line = "--sessions 2 --num-sessions 3 --turns 3 --system-tokens 30 --repository-tokens 40 --first-turn-tokens 50"
    plan = planned(agentic, f"{line} --turn-tokens 25-35 --think-time 1-2", Calibration(1.0, 2 * AROUND, 2 * AROUND))
    assert (plan.at_once, plan.requests) == (2, 9)
    heads = [session.turns[0].messages for session in plan.sessions]
    assert len({head[0]["content"] for head in heads}) == 1
    assert len({head[1]["content"].split()[39] for head in heads}) == 1
    assert len({tuple(head[1]["content"].split()[40:44]) for head in heads}) == 3
    assert {tokens(head) for head in heads} == {30 + 40 + 50}
    for session in plan.sessions:
        assert session.turns[0].wait_s == 0
        assert all(1 <= turn.wait_s <= 2 for turn in session.turns[1:])
        assert all(25 <= (turn.prompt_tokens or 0) <= 35 for turn in session.turns[1:])
    assert plan.tokens_most <= 120 + 2 * 35 + 3 * 64


def test_latency_is_one_request_at_a_time() -> None:
    plan = planned(latency, "--repetitions 3 --input-tokens 20")
    assert (plan.at_once, plan.requests) == (1, 3)
    assert len({session.turns[0].messages[0]["content"] for session in plan.sessions}) == 3


def test_a_trace_of_token_counts_and_messages(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    lines = [
        {"session": "b", "turn": 1, "messages": [user("go on")], "think_s": 1.5},
        {"session": "b", "turn": 0, "input_tokens": 50, "shared_tokens": 20, "output_tokens": 5, "at_s": 2},
        {"session": "a", "turn": 0, "input_tokens": 40, "shared_tokens": 20, "at_s": 3},
    ]
    path.write_text("\n".join(map(json.dumps, lines)))
    plan = planned(agentic, f"--trace {path}")
    first, second = plan.sessions
    assert (plan.at_once, first.at_s, second.at_s) == (None, 2, 3)
    assert [tokens(session.turns[0].messages) for session in plan.sessions] == [50, 40]
    assert (first.turns[1].messages, first.turns[1].wait_s) == ([user("go on")], 1.5)
    words = [session.turns[0].messages[0]["content"].split() for session in plan.sessions]
    assert words[0][:20] == words[1][:20]
    assert words[0][20:24] != words[1][20:24]


def test_a_raw_file_is_a_trace_of_its_lengths_and_times(tmp_path: Path) -> None:
    path = tmp_path / "raw.jsonl"
    requests = [
        made.request(1.0, (1.5, 2.0), warmup=True),
        made.request(3.0, (3.5, 4.0), prompt_tokens=100),
        made.request(6.0, (6.5,), turn=1, prompt_tokens=140),
        made.request(4.0, (6.5,), session=1, prompt_tokens=100),
        made.request(7.0, (7.5,), session=1, turn=1, error="500: no"),
    ]
    writer = raw.Writer(path)
    run = made.run(mode="agentic", workload={"system_tokens": 30, "repository_tokens": 20, "turns": "2"})
    lines: list[raw.Line] = [run, *requests, summarise(run, requests)]
    for line in lines:
        writer.write(line)
    writer.close()
    first, second = planned(agentic, f"--trace {path}").sessions
    assert (first.at_s, second.at_s, len(second.turns)) == (0, 1, 1)
    assert [turn.prompt_tokens for turn in first.turns] == [100, 38]
    assert [turn.output_tokens for turn in first.turns] == [2, 1]
    assert first.turns[1].wait_s == 2


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is empty"),
        ('{"session": 1}', "turn"),
        ('{"session": 1, "turn": 0}', "one is needed"),
        ("[]", "no trace"),
    ],
)
def test_what_is_no_trace_is_refused(text: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text(text)
    with pytest.raises(PlanError, match=says):
        planned(agentic, f"--trace {path}")


def test_calibration_finds_word_and_template() -> None:
    async def count(messages: list[Message]) -> int:
        return 2 * tokens(messages)

    async def untold(_messages: list[Message]) -> None:
        return None

    assert asyncio.run(calibrate(count, system=False, chat=True)) == Calibration(2.0, 20, 40, seen=True)
    assert asyncio.run(calibrate(count, system=True, chat=True)) == Calibration(2.0, 40, 40, seen=True)
    assert not asyncio.run(calibrate(untold, system=True, chat=True)).seen
    assert Calibration(2.0).words(7) == 4
    assert len(set(WORDS)) == len(WORDS)


@pytest.mark.parametrize("text", ["7", "7-9"])
def test_spans_are_spelled_as_they_are_read(text: str) -> None:
    assert str(span(text)) == text
    assert 7 <= span(text).draw(random.Random(0)) <= 9


@pytest.mark.parametrize("text", ["0", "2.5", "1-3", "exp:2", "lognormal:2,0.5", "exp:0", "lognormal:0,1"])
def test_waits_are_spelled_as_they_are_read(text: str) -> None:
    assert str(wait(text)) == text
    assert wait(text).draw(random.Random(0)) >= 0


@pytest.mark.parametrize("text", ["0", "9-7", "x", "-3"])
def test_other_spans_are_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is not"):
        span(text)


@pytest.mark.parametrize("text", ["3-1", "x", "-1", "exp:", "lognormal:1"])
def test_other_waits_are_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is not"):
        wait(text)


def test_a_conversation_as_one_text_grows_at_its_end() -> None:
    first = [user("a b")]
    more = [*first, {"role": "assistant", "content": " c."}, user("d")]
    assert as_text(more) == "a b c. d"
    assert as_text(more).startswith(as_text(first))


def test_what_a_server_refuses_is_left_out_piece_by_piece() -> None:
    bodies = [asking.body([], 1) for asking, _ in simpler(Asking("chat", "m", usage="each"))]
    assert "continuous_usage_stats" in bodies[0]["stream_options"]
    assert bodies[1]["stream_options"] == {"include_usage": True}
    assert {"ignore_eos", "stream_options"} & bodies[-1].keys() == set()
    assert len({json.dumps(body) for body in bodies}) == len(bodies)
