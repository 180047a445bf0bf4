from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
import uvloop

from tests.server.fake_engine import END, FOREVER, FakeEngine, Output, Step, Stream
from tokenspeed.engine.batch import Batch
from tokenspeed.engine.prompts import prompts_of
from tokenspeed.errors import EngineError, UserError
from tokenspeed.messages.base import pack_ids
from tokenspeed.messages.tokenizer import Ids, Text
from tokenspeed.sampling import UINT64_MAX, SamplingParams


def run(work: Coroutine[Any, Any, None]) -> None:
    uvloop.run(work)


def opened(engine: FakeEngine, count: int) -> Batch[Output]:
    def one() -> Stream:
        return engine.generate(Text("x"), SamplingParams(), namespace="", session="")

    return Batch.opened([one] * count)


def test_outputs_come_as_they_are_made_and_replies_in_order() -> None:
    async def main() -> None:
        script: list[list[Step]] = [[Output("a"), 0.02, END], [Output("b"), END], [0.01, END]]
        engine = FakeEngine(script=script).begin()
        assert [index async for index, _ in opened(engine, 3)] == [0, 1, 1, 2, 0]
        engine.script = [[0.01, Output("late"), END], [END]]
        assert [reply.text for reply in await opened(engine, 2).replies()] == ["late wörld\n", " wörld\n"]
        assert engine.requests_open == 0
        assert engine.cancelled == []

    run(main())


@pytest.mark.parametrize("error", [EngineError("lost"), UserError("bad"), ValueError("bug"), None])
def test_one_that_fails_ends_all(error: Exception | None) -> None:
    async def main() -> None:
        engine = FakeEngine(script=[FOREVER, [Output("a"), *([error] if error else [])], FOREVER]).begin()
        with pytest.raises(type(error) if error else EngineError, match=str(error) if error else "before it was"):
            await opened(engine, 3).replies()
        assert engine.requests_open == 0

    run(main())


def test_what_cannot_be_opened_leaves_nothing_open() -> None:
    async def main() -> None:
        engine = FakeEngine(script=[FOREVER]).begin()

        def refuse() -> Stream:
            raise EngineError("full", status=503)

        def one() -> Stream:
            return engine.generate(Text("x"), SamplingParams(), namespace="", session="")

        with pytest.raises(EngineError, match="full"):
            Batch.opened([one, one, refuse])
        assert engine.cancelled == [1, 2]
        engine.accept = [UserError("long")]
        with pytest.raises(UserError, match="long"):
            await opened(engine, 2).accepted()
        assert engine.requests_open == 0

    run(main())


def test_leaving_the_iteration_cancels_all() -> None:
    async def main() -> None:
        engine = FakeEngine(script=[FOREVER]).begin()
        outputs = aiter(opened(engine, 3))
        await anext(outputs)
        await outputs.aclose()
        await asyncio.sleep(0)
        assert sorted(engine.cancelled) == [1, 2, 3]

    run(main())


def test_prompts_in_every_form() -> None:
    assert prompts_of("a", None) == ([Text("a")], False)
    assert prompts_of(["a", "b"], None) == ([Text("a"), Text("b")], True)
    assert prompts_of(None, [1, 2]) == ([Ids(pack_ids([1, 2]))], False)
    assert prompts_of(None, [[1], [2]]) == ([Ids(pack_ids([1])), Ids(pack_ids([2]))], True)
    for prompt, ids in ((None, None), ("a", [1]), (None, ["x"]), (None, [2**40])):
        with pytest.raises(UserError):
            prompts_of(prompt, ids)  # type: ignore[arg-type]


def test_seeds_count_up() -> None:
    assert [SamplingParams(seed=UINT64_MAX).for_choice(index).seed for index in range(2)] == [UINT64_MAX, 0]
    assert SamplingParams().for_choice(3).seed is None
