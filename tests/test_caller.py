from __future__ import annotations

from tokenspeed.caller import Account, Caller


def account(**more: object) -> Account:
    usual = {"finish": "stop", "prompt_tokens": 10, "cached_tokens": 8, "completion_tokens": 5}
    return Account(**{**usual, "first_s": 0.1, "duration_s": 0.5, **more})  # type: ignore[arg-type]


def test_a_call_without_replies_has_its_names_alone() -> None:
    assert Caller("a").fields() == {"id": "a"}
    assert Caller("a", key="team").fields() == {"id": "a", "key": "team"}


def test_counts_are_sums_and_times_those_of_the_slowest() -> None:
    slow = account(finish="length", first_s=0.2, duration_s=1.0, prompt="secret", text="secret")
    fields = Caller("a", replies=[account(), slow]).fields()
    assert fields == {
        "id": "a",
        "prompt_tokens": 20,
        "cached_tokens": 16,
        "completion_tokens": 10,
        "ttft_ms": 200.0,
        "tpot_ms": 200.0,
        "finish": "stop,length",
    }


def test_what_never_came_has_no_time() -> None:
    refused = account(finish="cancelled", completion_tokens=0, first_s=None)
    assert Caller("a", replies=[refused]).fields().keys().isdisjoint({"ttft_ms", "tpot_ms"})
    assert "tpot_ms" not in Caller("a", replies=[account(completion_tokens=1)]).fields()


def test_text_is_told_by_wish_alone() -> None:
    replies = [account(prompt="what?", text="that")]
    assert not {"prompt", "reply"} & Caller("a", replies=replies).fields().keys()
    fields = Caller("a", keep_text=True, replies=replies).fields()
    assert (fields["prompt"], fields["reply"]) == (["what?"], ["that"])


def test_callers_share_nothing() -> None:
    Caller("a").replies.append(account())
    assert Caller("b").replies == []
