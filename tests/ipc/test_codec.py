"""Messages to bytes and back, with views in place of copies."""

from __future__ import annotations

import msgspec
import pytest

from tokenspeed.ipc.codec import BUFFER_BYTES, Decoder, Encoder, view_type
from tokenspeed.messages.base import Message, pack_ids, unpack_ids
from tokenspeed.messages.detokenizer import DetokenizerMessage, DropStream, StreamOpening, TokenBatch, TokenEntry
from tokenspeed.messages.executor import SlotOpening, StepPlan
from tokenspeed.messages.scheduler import StreamSettings


def _plan() -> StepPlan:
    opening = SlotOpening(1, 2, 3, 0.5, 0.9, 40, 0.0, 9, pack_ids([7]))
    return StepPlan(5, [opening], pack_ids([1, 2]), b"", ids=pack_ids(range(100)))


def test_round_trip_with_copies() -> None:
    decoder = Decoder(StepPlan, views=False)
    assert decoder.decode(Encoder().encode(_plan())) == _plan()


def test_bytes_are_views_of_the_record() -> None:
    record = bytes(Encoder().encode(_plan()))
    plan = Decoder(StepPlan).decode(memoryview(record))
    assert isinstance(plan, StepPlan)
    views: list[object] = [plan.pages, plan.rows, plan.ids, plan.openings[0].suppress]
    for view in views:
        assert isinstance(view, memoryview)
        assert view.obj is record
    assert unpack_ids(plan.ids) == list(range(100))
    assert unpack_ids(plan.openings[0].suppress) == [7]
    assert (plan.step, plan.openings[0].top_k) == (5, 40)


def test_unions_match_by_class() -> None:
    encoder, decoder = Encoder(), Decoder[DetokenizerMessage](DetokenizerMessage)
    opening = StreamOpening(StreamSettings(("stop",), 3), 2)
    batch = decoder.decode(bytes(encoder.encode(TokenBatch(1, [TokenEntry(4, 0, pack_ids([9]), opening=opening)]))))
    match batch:
        case TokenBatch(step, [entry]):
            assert step == 1
            assert unpack_ids(entry.ids) == [9]
            assert entry.finish == ""
            assert entry.opening is not None
            assert (entry.opening.settings, entry.opening.cached_tokens) == (opening.settings, opening.cached_tokens)
        case _:
            pytest.fail(f"{batch}")
    assert decoder.decode(encoder.encode(DropStream(8))) == DropStream(8)


def test_a_type_without_bytes_stays_itself() -> None:
    assert view_type(DropStream) is DropStream
    assert view_type(StreamSettings) is StreamSettings
    assert view_type(dict[str, list[int]]) == dict[str, list[int]]
    assert view_type(tuple[bytes, int] | None) == tuple[memoryview, int] | None


def test_what_is_sent_again_is_what_came() -> None:
    encoder = Encoder()
    record = bytes(encoder.encode(_plan()))
    assert encoder.encode(Decoder(StepPlan).decode(record)) == record


def test_other_bytes_are_refused() -> None:
    decoder = Decoder(StepPlan)
    for record in (b"", b"\xc1", bytes(Encoder().encode(DropStream(1)))):
        with pytest.raises(msgspec.DecodeError):
            decoder.decode(record)


def test_an_encoder_reuses_its_memory_and_grows() -> None:
    class Blob(Message, frozen=True):
        data: bytes

    encoder = Encoder()
    small = encoder.encode(Blob(b"x"))
    assert encoder.encode(Blob(b"yy")) is small
    large = Blob(bytes(10 * BUFFER_BYTES))
    assert Decoder(Blob, views=False).decode(encoder.encode(large)) == large
    assert Decoder(Blob, views=False).decode(encoder.encode(Blob(b"z"))) == Blob(b"z")
