"""A request's parts sum to its life, whatever befalls it; its story names what it waited for."""

from __future__ import annotations

from itertools import pairwise
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st
from tokenspeed_tools.trace.life import Doing, Life
from tokenspeed_tools.trace.past import Past
from tokenspeed_tools.trace.story import Story

from tests.tools.trace.histories import Chaos, Tape, one_request
from tokenspeed.points import Finish, Kind, Wait


def _life(tape: Tape, request: int = 1) -> tuple[Past, Life]:
    past = Past(tape.points, tape.now_ns)
    life = past.life(request)
    assert life is not None
    return past, life


def _assert_fills(life: Life) -> None:
    assert sum(part.ns for part in life.parts) == life.e2e_ns
    assert all(part.ns > 0 for part in life.parts)
    assert all(before.end_ns == after.begin_ns for before, after in pairwise(life.parts))
    if life.parts:
        assert (life.parts[0].begin_ns, life.parts[-1].end_ns) == (life.begin_ns, life.end_ns)


@settings(max_examples=40, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(1, 60), st.booleans())
def test_parts_and_entries_fill_every_life(random: Random, actions: int, lossy: bool) -> None:
    chaos = Chaos(random)
    points = chaos.run(actions)
    past = Past(chaos.lossy() if lossy else points, chaos.tape.now_ns)
    for request in past.requests:
        life = past.life(request)
        assert life is not None
        _assert_fills(life)
        story = Story(past, life)
        entries = story.entries()
        assert sum(entry.ns for entry in entries) == life.e2e_ns
        assert all(ns > 0 and cause for ns, cause in story.waits())
        if not lossy:
            assert life.is_whole
            assert life.begin_ns == life.times(Kind.RECEIVED)[0]


def test_a_life_alone_goes_through_its_parts_in_order() -> None:
    _, life = _life(one_request(3))
    assert [part.doing for part in life.parts] == [
        *(Doing.RECEIVED, Doing.TO_TOKENIZER, Doing.ENCODE_WAIT, Doing.ENCODE, Doing.TO_SCHEDULER, Doing.ADMISSION),
        *(Doing.ADMITTED, Doing.PROMPT, Doing.DECODE_GAP, Doing.DECODE, Doing.DECODE_GAP, Doing.DECODE),
        *(Doing.TEXT, Doing.TO_ENGINE, Doing.DELIVERY),
    ]
    assert (life.prompt_tokens, life.cached_tokens, life.output_tokens, life.finish) == (100, 16, 3, Finish.LENGTH)
    assert life.ttft_ns == life.times(Kind.WRITTEN)[0] - life.begin_ns
    assert not life.is_open


def test_an_answer_that_is_sent_whole_waits_for_no_client() -> None:
    tape = one_request(3)
    engine = tape.points["engine"]
    last = engine[-1]
    engine[:] = [point for point in engine if point.kind is not Kind.WRITTEN]
    engine.append(last._replace(kind=Kind.WRITTEN, time_ns=last.time_ns + 50_000_000))
    past, life = _life(tape)
    assert life.sent_whole
    assert life.ttft_ns == life.times(Kind.DELTA)[0] - life.begin_ns
    assert all("read slowly" not in cause for _, cause in Story(past, life).waits())
    assert not _life(one_request(3))[1].sent_whole


def test_a_life_that_goes_on_lasts_until_now() -> None:
    tape = Tape()
    tape.open(1)
    tape.note("scheduler", Kind.WAITS, 1, value=Wait.SLOTS)
    tape.now_ns += 5_000
    past, life = _life(tape)
    assert life.is_open
    assert life.end_ns == tape.now_ns
    assert (life.parts[-1].doing, life.parts[-1].wait) == (Doing.ADMISSION, Wait.SLOTS)
    assert Story(past, life).waits()[0][1] == "for admission: every slot was taken, 0 requests ran"


def test_pages_given_up_and_a_dead_executor_are_told_apart() -> None:
    tape = Tape()
    for request in (1, 2):
        tape.open(request)
        tape.note("scheduler", Kind.ADMITTED, request)
        tape.plan(request, {request: 100}, 1)
        tape.launch(request)
        tape.compute(request, ends=request == 1)
        tape.note("scheduler", Kind.RETRACTED, request, value=100)
        if request == 2:
            tape.note("executor", Kind.STARTED)
        tape.note("scheduler", Kind.ADMITTED, request)
    assert "others that ran needed its pages; 100 tokens to be computed again" in _texts(tape, 1)
    assert "the executor died and was started again; 100 tokens to be computed again" in _texts(tape, 2)


def test_a_step_that_never_began_is_no_part_of_a_life() -> None:
    tape = Tape()
    tape.open(1)
    tape.note("scheduler", Kind.ADMITTED, 1)
    for step in (1, 2):
        tape.plan(step, {1: 50}, 1)
        tape.launch(step)
    tape.compute(1, ends=False)
    tape.note("scheduler", Kind.RETRACTED, 1, value=100)
    _, life = _life(tape)
    assert [part.step.number for part in life.parts if part.step] == [1]


def test_a_client_that_reads_slowly_is_named() -> None:
    tape = one_request(2)
    tape.open(2)
    for request in (2, 1):
        tape.note("engine", Kind.DELTA, 2, value=request)
        tape.now_ns += 100_000_000
        tape.note("engine", Kind.TURN_END)
        tape.note("engine", Kind.WRITTEN, 2, value=20)
    past, life = _life(tape, 2)
    waits = {cause: ns for ns, cause in Story(past, life).waits()}
    assert waits["for the client, which read slowly"] == 2 * 100_002_000


def test_slow_steps_and_gaps_name_whose_prompt_it_was() -> None:
    tape = one_request(1)  # request 1; then request 2 decodes beside the prompt of request 3
    for request in (2, 3):
        tape.open(request)
    tape.note("scheduler", Kind.ADMITTED, 2)
    for step in range(2, 9):
        if step == 6:
            tape.note("scheduler", Kind.ADMITTED, 3)
        tape.plan(step, {2: 100} if step == 2 else {3: 512} if step == 6 else {}, 2)
        tape.launch(step)
        tape.compute(step, ends=False)
        tape.now_ns += 9_000_000 if step == 6 else 1_000_000
        tape.note("executor", Kind.COMPUTE_END, 0, step)
        tape.send(step)
        tape.apply(step, [2])
        tape.deliver(step, 2, step)
    past, life = _life(tape, 2)
    _, cause = Story(past, life).waits()[0]
    assert cause == "in steps that computed prompts of others as well"
    notes = [note for entry in Story(past, life).entries() for note in entry.notes]
    assert len(notes) == 1
    assert "in step 6: it computed 512 prompt tokens of request 3" in notes[0]


def _texts(tape: Tape, request: int) -> str:
    past, life = _life(tape, request)
    return "\n".join(entry.text for entry in Story(past, life).entries())
