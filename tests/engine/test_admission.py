from __future__ import annotations

import pytest

from tokenspeed.engine.admission import Admission
from tokenspeed.errors import EngineError
from tokenspeed.messages.tokenizer import Chat, Ids, Prompt, Text

TEN: tuple[Prompt, ...] = (Chat(b"0123456789"), Text("0123456789"), Ids(b"0123456789"))


def refused(admission: Admission, prompt: Prompt) -> str:
    with pytest.raises(EngineError) as caught:
        admission.enter(prompt)
    assert (caught.value.status, caught.value.code) == (429, "overloaded")
    return caught.value.message


def test_requests_are_counted_until_they_leave() -> None:
    admission = Admission(2, 1000)
    admission.enter(TEN[0])
    admission.enter(TEN[1])
    assert "--max-queued-requests" in refused(admission, TEN[2])
    admission.leave(TEN[0])
    admission.enter(TEN[2])
    assert (admission.requests, admission.bytes) == (2, 20)


@pytest.mark.parametrize("prompt", TEN)
def test_bytes_are_counted_and_one_request_is_always_taken(prompt: Prompt) -> None:
    admission = Admission(9, 15)
    admission.enter(prompt)
    assert "--max-queued-bytes" in refused(admission, prompt)
    admission.leave(prompt)
    assert (admission.requests, admission.bytes) == (0, 0)
    admission = Admission(9, 5)
    admission.enter(prompt)
    assert "--max-queued-bytes" in refused(admission, Text("x"))
