"""The detokenizer actor between its neighbours' messages, without processes."""

from __future__ import annotations

import asyncio
import struct

import pytest

from tests.actors.said import Said, quiet
from tests.text.samples import demo_tokenizer
from tests.tiny import demo_path
from tokenspeed.actors.detokenizer import DetokenizerActor
from tokenspeed.config import DetokenizerConfig, ModelConfig
from tokenspeed.messages.base import pack_ids, unpack_ids
from tokenspeed.messages.detokenizer import StreamOpening, TokenBatch, TokenEntry
from tokenspeed.messages.engine import OutputDelta, StreamsFenced
from tokenspeed.messages.scheduler import StreamSettings, Verdict
from tokenspeed.text.pieces import LOGPROB_MIN, Pieces

CONFIG = DetokenizerConfig(model=ModelConfig(path=str(demo_path()), served_name="demo", max_model_len=2048))
OPENING = StreamOpening(StreamSettings((), 4), 0)


def test_a_new_scheduler_says_every_stream_again_from_the_start() -> None:
    async def main() -> None:
        said = Said()
        actor = DetokenizerActor(CONFIG, said, quiet)
        await actor.start()
        first = [TokenEntry(number, 0, pack_ids([1000, 2000]), "", OPENING) for number in (1, 2)]
        actor.receive("scheduler", TokenBatch(1, first))
        actor.peer_restarted("scheduler", 5)
        assert said.of(StreamsFenced) == [StreamsFenced(5)]
        # Request 2 was cancelled while no scheduler could hear it; 1 goes on.
        actor.receive("scheduler", TokenBatch(1, [TokenEntry(1, 0, pack_ids([1000, 2000, 3000]), "length", OPENING)]))
        *_, last = said.of(OutputDelta)
        assert (last.first, last.text_offset, last.completion_tokens) == (0, 0, 3)
        assert last.text.startswith(said.of(OutputDelta)[0].text)
        assert said.of(Verdict) == [Verdict(1, 3, "length")]
        actor.receive("scheduler", TokenBatch(2, [TokenEntry(2, 2, pack_ids([3000]))]))
        assert len(said.of(OutputDelta)) == 3

    asyncio.run(main())


def entry(token: int, logprob: float, top: int = 0) -> bytes:
    """Return a packed entry whose likeliest ids are the token and the ones behind it."""
    ids = struct.pack(f"{top}i", *range(token, token + top))
    return struct.pack("iif", token, 2, logprob) + ids + struct.pack(f"{top}f", *[logprob] * top)


def say(actor: DetokenizerActor, ids: list[int], first: int, size: int, finish: str, opening: StreamOpening) -> None:
    """Tell the ids from `first` on in batches of `size`."""
    for begin in range(first, len(ids), size):
        part = ids[begin : begin + size]
        packed = b"".join(entry(token, -token / 1000, 1) for token in part) if opening.settings.logprobs >= 0 else b""
        ending = finish if begin + size >= len(ids) else ""
        batch = TokenEntry(1, begin, pack_ids(part), ending, opening if begin == 0 else None, packed)
        actor.receive("scheduler", TokenBatch(1, [batch]))


@pytest.mark.parametrize("size", [1, 2, 50])
def test_log_probabilities_come_with_their_ids_and_go_with_what_a_stop_cuts(size: int) -> None:
    async def main() -> None:
        tokenizer = demo_tokenizer()
        pieces = tokenizer.vocabulary.token_bytes
        ids = list(tokenizer.encode("One, two, three, four, five, six"))
        kept = next(index for index, token in enumerate(ids) if pieces[token] == b" four")
        settings = StreamSettings((" four,", "never"), 4, logprobs=1, prompt_logprobs=0)
        scores = b"".join(entry(token, -1.0) for token in (7, 8, 9))
        said = Said()
        actor = DetokenizerActor(CONFIG, said, quiet)
        await actor.start()
        say(actor, ids, 0, size, "length", StreamOpening(settings, 0, scores))
        deltas = said.of(OutputDelta)
        sent = [token for delta in deltas for token in unpack_ids(delta.ids)]
        positions = [position for delta in deltas for position in delta.logprobs or []]
        assert "".join(delta.text for delta in deltas) == "One, two, three,"
        assert sent == ids[:kept] == [position.token.id for position in positions]
        assert b"".join(position.token.piece for position in positions) == b"One, two, three,"
        assert [position.offset for position in positions] == [
            len(b"".join(pieces[token] for token in ids[:index])) for index in range(kept)
        ]
        [likeliest] = positions[1].top
        assert (likeliest.id, likeliest.piece) == (ids[1], pieces[ids[1]])
        assert likeliest.logprob == pytest.approx(-ids[1] / 1000)
        assert (positions[0].rank, deltas[-1].stop_reason) == (2, " four,")
        assert said.of(Verdict) == [Verdict(1, kept + 2, "stop")]
        [prompt] = [delta.prompt_logprobs for delta in deltas if delta.prompt_logprobs is not None]
        assert prompt[0] is None
        assert [position.token.id for position in prompt[1:] if position is not None] == [7, 8, 9]

    asyncio.run(main())


def test_what_ended_a_reply_is_told_and_control_tokens_are_shown_on_demand() -> None:
    async def main() -> None:
        said = Said()
        actor = DetokenizerActor(CONFIG, said, quiet)
        await actor.start()
        ids = [1, 1000, 2]  # a mark that begins a turn, a word, and the mark that ends one
        for settings in (
            StreamSettings((), 4),
            StreamSettings((), 4, stop_ids=(2,)),
            StreamSettings((), 4, skip_special=False),
            StreamSettings((")",), 4, include_stop=True),
        ):
            say(actor, ids, 0, 3, "stop", StreamOpening(settings, 0))
        assert [(delta.text, delta.finish, delta.stop_reason) for delta in said.of(OutputDelta)] == [
            ("()", "stop", None),
            ("()", "stop", 2),
            ("<|im_start|>()", "stop", None),
            ("()", "stop", ")"),
        ]

    asyncio.run(main())


@pytest.mark.parametrize("number", [float("-inf"), float("nan"), -1e30])
def test_no_number_leaves_that_json_cannot_say(number: float) -> None:
    [position] = Pieces([b"a", b"b"]).positions(entry(0, number, 2), 2, [0])
    assert [position.token.logprob, *(each.logprob for each in position.top)] == [LOGPROB_MIN] * 3
