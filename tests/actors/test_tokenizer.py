from __future__ import annotations

import asyncio
import threading
from array import array
from collections.abc import Callable, Coroutine, Sequence

import pytest
import uvloop

from tokenspeed.actors import tokenizer
from tokenspeed.actors.tokenizer import GIANT_BYTES, SLOW_CHARS, TokenizerActor
from tokenspeed.config import ModelConfig, TokenizerConfig
from tokenspeed.messages.base import Message, pack_ids
from tokenspeed.messages.engine import ModelEnds
from tokenspeed.messages.scheduler import Dropped, Submit
from tokenspeed.messages.tokenizer import CancelTokenize, GenerateRequest, Prompt, Replied, Text
from tokenspeed.sampling import SamplingParams
from tokenspeed.text.encoder import Draft, Keys
from tokenspeed.text.prompt import Begun
from tokenspeed.text.replies import Place

CONFIG = TokenizerConfig(model=ModelConfig(path="/m", served_name="m", max_model_len=100), threads=1)
PLACE = Place(b"before", Keys("").begun("head"), 4)
SLOW = "slow"
NEW = "n" * (SLOW_CHARS + 1)
GIANT = "g" * (GIANT_BYTES + 1)


class Builder:
    """Stands in for `PromptBuilder`: a prompt that is slow or giant waits for `go`."""

    vocab_tokens = 10
    end_ids = (2,)
    ends = ()

    def __init__(self) -> None:
        self.go = threading.Event()
        self.built: list[str] = []
        self.learned: list[tuple[Place, str, Sequence[int]]] = []

    def close(self) -> None:
        """Nothing is held."""

    def begin(self, prompt: Prompt, _namespace: str) -> Begun:
        assert isinstance(prompt, Text)
        self.built.append(prompt.text)
        if prompt.text in (SLOW, GIANT):
            assert self.go.wait(10.0)
        return Begun(Draft([], {}, {b"key": prompt.text}, None), "prompt", PLACE)

    def finish(self, begun: Begun) -> array[int]:
        if begun.draft.missing[b"key"] == NEW:
            assert self.go.wait(10.0)
        return array("i", [1, 2, 3])

    def learn(self, place: Place, text: str, ids: Sequence[int]) -> None:
        self.learned.append((place, text, ids))


class Outbox:
    """Keeps what is sent."""

    def __init__(self) -> None:
        self.sent: list[Message] = []

    def send(self, _reader: str, message: Message) -> None:
        self.sent.append(message)


def act(
    test: Callable[[TokenizerActor, Builder, list[Message]], Coroutine[None, None, None]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Run `test` on a started actor; what it sends is in the list."""
    builder, outbox = Builder(), Outbox()
    monkeypatch.setattr(tokenizer, "load_prompt_builder", lambda _config: builder)

    async def main() -> None:
        actor = TokenizerActor(CONFIG, outbox, lambda _name, _limit_s: None)  # type: ignore[arg-type]
        await actor.start()
        assert outbox.sent.pop() == ModelEnds(())
        try:
            await test(actor, builder, outbox.sent)
        finally:
            builder.go.set()
            await actor.stop()

    uvloop.run(main())


def ask(actor: TokenizerActor, number: int, text: str, attempt: int = 0) -> None:
    actor.receive("engine", GenerateRequest(number, attempt, Text(text), SamplingParams()))


async def until(sent: list[Message], count: int) -> None:
    async with asyncio.timeout(10.0):
        while len(sent) < count:  # noqa: ASYNC110 - the outbox tells nobody
            await asyncio.sleep(0.005)


def test_giant_prompts_do_not_hold_up_others(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(actor: TokenizerActor, builder: Builder, sent: list[Message]) -> None:
        for number in (1, 2, 3):
            ask(actor, number, GIANT)
        ask(actor, 4, "short")
        await until(sent, 1)
        builder.go.set()
        await until(sent, 4)
        assert [message.request for message in sent if isinstance(message, Submit)] == [4, 1, 2, 3]

    act(test, monkeypatch)


def test_much_new_text_does_not_hold_up_short_prompts(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(actor: TokenizerActor, builder: Builder, sent: list[Message]) -> None:
        for number in (1, 2, 3):
            ask(actor, number, NEW)
        ask(actor, 4, "short")
        await until(sent, 1)
        builder.go.set()
        await until(sent, 4)
        assert [message.request for message in sent if isinstance(message, Submit)] == [4, 1, 2, 3]

    act(test, monkeypatch)


def test_how_a_conversation_was_answered_is_learned_without_the_id_that_ended_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def test(actor: TokenizerActor, builder: Builder, sent: list[Message]) -> None:
        for number in (1, 2):
            ask(actor, number, "short")
        await until(sent, 2)
        actor.receive("engine", Replied(2, "two", pack_ids([7, 8])))
        actor.receive("engine", Replied(1, "one", pack_ids([9, 2])))
        for number in (1, 2, 3):  # over already, or never heard of
            actor.receive("engine", Replied(number, "no", pack_ids([5])))
        assert builder.learned == [(PLACE, "two", [7, 8]), (PLACE, "one", [9])]

    act(test, monkeypatch)


def test_a_prompt_that_nobody_waits_for_any_more_is_not_encoded(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(actor: TokenizerActor, builder: Builder, sent: list[Message]) -> None:
        ask(actor, 1, SLOW)
        ask(actor, 2, "abandoned")
        ask(actor, 3, "wanted")
        await asyncio.sleep(0.05)
        actor.receive("engine", CancelTokenize(2))
        builder.go.set()
        await until(sent, 3)
        assert builder.built == [SLOW, "wanted"]
        assert [(type(message), message.request) for message in sent if isinstance(message, Submit | Dropped)] == [
            (Submit, 1),
            (Dropped, 2),
            (Submit, 3),
        ]

    act(test, monkeypatch)


def test_of_a_request_sent_again_only_the_last_attempt_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(actor: TokenizerActor, builder: Builder, sent: list[Message]) -> None:
        for attempt in (0, 1):
            ask(actor, 1, SLOW, attempt)
            ask(actor, 2, SLOW, attempt)
        await asyncio.sleep(0.05)
        actor.receive("engine", CancelTokenize(2))
        builder.go.set()
        await until(sent, 2)
        await asyncio.sleep(0.05)
        (again,) = (message for message in sent if isinstance(message, Submit))
        assert (again.request, again.attempt) == (1, 1)
        assert [message for message in sent if not isinstance(message, Submit)] == [Dropped(2)]

    act(test, monkeypatch)
