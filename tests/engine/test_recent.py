from __future__ import annotations

from tokenspeed.caller import CALLER, Caller
from tokenspeed.engine.recent import CALLERS_MAX, RecentCallers


def test_a_caller_is_found_by_its_id_and_by_that_of_its_answer_and_the_oldest_is_forgotten() -> None:
    recent = RecentCallers()
    recent.note(1)  # from Python: nobody asks
    for number in range(CALLERS_MAX + 1):
        caller = Caller(f"req-{number}")
        CALLER.set(caller)
        recent.note(2 * number)
        recent.note(2 * number + 1)
        caller.trail.answer = f"chatcmpl-{number}"
    CALLER.set(None)
    found = recent.find("req-7")
    assert found is recent.find("chatcmpl-7")
    assert found is not None
    assert found.requests == [14, 15]
    assert recent.find("req-0") is None
    assert recent.find("") is None


def test_of_two_callers_with_one_id_the_newer_is_found() -> None:
    recent = RecentCallers()
    for number in (1, 2):
        CALLER.set(Caller("mine"))
        recent.note(number)
    CALLER.set(None)
    found = recent.find("mine")
    assert found is not None
    assert found.requests == [2]
