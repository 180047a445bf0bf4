"""The tokenizer actor between its neighbours' messages, without processes."""

from __future__ import annotations

import asyncio

from tests.actors.said import Said, quiet
from tests.tiny import demo_path
from tokenspeed.actors.tokenizer import TokenizerActor
from tokenspeed.config import ModelConfig, TokenizerConfig
from tokenspeed.messages.base import pack_ids
from tokenspeed.messages.scheduler import Dropped, Submit
from tokenspeed.messages.tokenizer import CancelTokenize, GenerateRequest, Text
from tokenspeed.sampling import SamplingParams

CONFIG = TokenizerConfig(model=ModelConfig(path=str(demo_path()), served_name="demo", max_model_len=2048))


def request(attempt: int, resume: bytes = b"") -> GenerateRequest:
    """Return one request as the engine sends it for the `attempt`th time."""
    return GenerateRequest(1, attempt, Text("a word " * 200), SamplingParams(seed=1), resume=resume)


def test_a_request_that_comes_again_while_it_is_encoded_is_submitted_once() -> None:
    async def main() -> None:
        faults: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context))
        said = Said()
        actor = TokenizerActor(CONFIG, said, quiet)
        await actor.start()
        actor.receive("engine", request(0))
        await asyncio.sleep(0)  # the first attempt is under way in a thread
        actor.receive("engine", request(1, pack_ids([7, 8])))
        await said.first()
        [submit] = said.of(Submit)
        assert (submit.attempt, submit.resume) == (1, pack_ids([7, 8]))
        assert len(said.all) == 1
        actor.receive("engine", CancelTokenize(1))
        assert said.all[-1] == ("scheduler", Dropped(1))
        assert not faults
        await actor.stop()

    asyncio.run(main())


def test_a_request_that_comes_again_can_be_cancelled() -> None:
    async def main() -> None:
        said = Said()
        actor = TokenizerActor(CONFIG, said, quiet)
        await actor.start()
        actor.receive("engine", request(0))
        actor.receive("engine", request(1))
        actor.receive("engine", CancelTokenize(1))
        await said.first()
        assert said.all == [("scheduler", Dropped(1))]
        await actor.stop()

    asyncio.run(main())
