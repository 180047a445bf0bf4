"""The detokenizer actor between its neighbours' messages, without processes."""

from __future__ import annotations

import asyncio

from tests.actors.said import Said, quiet
from tests.tiny import demo_path
from tokenspeed.actors.detokenizer import DetokenizerActor
from tokenspeed.config import DetokenizerConfig, ModelConfig
from tokenspeed.messages.base import pack_ids
from tokenspeed.messages.detokenizer import StreamOpening, TokenBatch, TokenEntry
from tokenspeed.messages.engine import OutputDelta, StreamsFenced
from tokenspeed.messages.scheduler import StreamSettings, Verdict

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
