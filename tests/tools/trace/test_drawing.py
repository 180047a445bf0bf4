"""A recording as a picture: exact for one request, whole for anything that may happen to an engine."""

from __future__ import annotations

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tokenspeed_tools.trace.drawing import draw, levels
from tokenspeed_tools.trace.recording import Recording

from tests.tools.trace.histories import Chaos, Tape, one_request, recorded
from tests.tools.trace.perfetto_file import Found, read
from tokenspeed.kernel_slices import KernelSlice
from tokenspeed.points import Kind


def _drawn(recording: Recording) -> list[Found]:
    return read(b"".join(draw(recording).encode(recording.begin_ns, recording.begin_at_s)))


def _of_one_request(tokens: int = 3) -> list[Found]:
    tape = one_request(tokens)
    return _drawn(recorded(tape.points, tape.now_ns))


def test_a_request_has_its_parts_and_tokens() -> None:
    own = [each for each in _of_one_request() if each.track == "request 1"]
    whole = own[0]
    assert whole.name == "request"
    assert whole.arguments == {
        "request": 1,
        "prompt_tokens": 100,
        "cached_tokens": 16,
        "output_tokens": 3,
        "finish": "length",
    }
    parts = [each for each in own if each.depth == 1 and each.begin_ns < each.end_ns]
    assert sum(each.end_ns - each.begin_ns for each in parts) == whole.end_ns - whole.begin_ns
    assert {"prefill", "decode"} < {each.name for each in parts}
    tokens = [each for each in own if each.name in ("first_token", "token")]
    assert [each.name for each in tokens] == ["first_token", "token", "token"]
    assert [(each.arguments["step"], each.arguments["tokens"]) for each in tokens] == [(1, 1), (2, 1), (3, 1)]


def test_arrows_go_from_request_to_step_to_token() -> None:
    """In the order of time, in which Perfetto draws them."""
    found = _of_one_request(1)
    (arrow,) = {flow for each in found for flow in each.flows}
    assert [each.name for each in found if arrow in each.flows] == ["compute", "prompt computed", "first_token"]


def test_steps_overlap_on_two_lanes() -> None:
    found = _of_one_request(4)
    steps = [each for each in found if each.name == "step"]
    assert [each.arguments["step"] for each in steps] == [1, 2, 3, 4]
    assert steps[0].arguments == {"step": 1, "kind": "prefill", "rows": 1, "prompt_tokens": 84}
    assert steps[1].begin_ns < steps[0].end_ns
    inside = [each.name for each in found if each.track == "steps" and each.arguments["step"] == 1]
    assert inside[:3] == ["step", "plan", "send plan"]
    assert inside[-3:] == ["result travels", "apply result", "hand over"]
    assert {"compute", "forward", "logits", "sample"} < set(inside)


def test_actors_have_turns_pauses_restarts_and_kernels() -> None:
    tape = one_request(1)
    for kind, value in ((Kind.GC_BEGIN, 2), (Kind.GC_END, 2), (Kind.STARTED, 0)):
        tape.note("executor", kind, value=value)
    tape.note("scheduler", Kind.RING_SENT, value=10)
    tape.note("executor", Kind.RING_RECEIVED, value=10)
    tape.note("scheduler", Kind.RING_FULL, value=11)
    kernels = (KernelSlice("gemm", 5, 9, 7), KernelSlice("copy", 6, 8, 20))
    found = _drawn(replace(recorded(tape.points, tape.now_ns), kernels=kernels))
    by_name = {each.name: each for each in found}
    assert by_name["collect"].arguments == {"generation": 2}
    assert by_name["turn"].arguments == {"records": 1}
    assert by_name["started"].begin_ns == by_name["started"].end_ns
    assert by_name["send to executor"].flows == by_name["receive from scheduler"].flows != ()
    assert by_name["no room to executor"].arguments == {"edge": 0, "bytes": 11}
    assert (by_name["gemm"].track, by_name["copy"].track) == ("GPU stream 7", "GPU stream 20")
    assert [(each.value) for each in found if each.track == "scheduler to executor"] == [10, 0]


def test_counters_follow_requests_and_plans() -> None:
    found = _of_one_request()
    assert [each.value for each in found if each.track == "rows"] == [1, 1, 1]
    assert [each.value for each in found if each.track == "prompt tokens"] == [84, 0, 0]
    for track in ("requests waiting", "requests running"):
        values = [each.value for each in found if each.track == track]
        assert max(values) == 1
        assert values[-1] == 0


def test_levels_add_up() -> None:
    assert list(levels([(3, -1), (1, 1), (1, 1)])) == [(1, 2), (3, 1)]


def test_an_engine_that_does_nothing() -> None:
    recording = recorded(Tape().points, 10)
    assert {each.name for each in _drawn(recording)} == {"recording", "started"}


@settings(max_examples=25)
@given(st.randoms(use_true_random=False), st.booleans())
def test_whatever_happens_can_be_drawn(random: Random, loses: bool) -> None:
    """Retractions, cancels, deaths, points that are missing: the file keeps its rules, and each request is in it."""
    chaos = Chaos(random)
    points = chaos.run(random.randint(1, 60))
    if loses:
        points = chaos.lossy()
    found = _drawn(recorded(points, chaos.tape.now_ns))
    requests = {point.request for own in points.values() for point in own if point.request}
    assert {each.arguments["request"] for each in found if each.name == "request"} == requests
