"""Sampling through a whole engine: what a request asks for changes its own reply and nobody else's.

One engine serves all tests. Of its tiny random model the embedding of one token is damaged, so that
whoever has that token in the prompt gets logits that are not finite.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest
import uvloop

from tests.e2e.harness import Heard, greedy, hear, hear_all, ids_prompt
from tests.tiny import write_tiny_model
from tokenspeed.config import EngineConfig
from tokenspeed.engine import AsyncEngine
from tokenspeed.errors import EngineError, UserError
from tokenspeed.messages.base import pack_ids, unpack_ids
from tokenspeed.messages.tokenizer import Ids, Text
from tokenspeed.sampling import SamplingParams

pytestmark = pytest.mark.long

DAMAGED = 16_000
T = TypeVar("T")


class Served:
    """A started engine and the loop that it lives in."""

    def __init__(self, model: Path) -> None:
        self._runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
        self.engine = self.run(self._start(model))

    async def _start(self, model: Path) -> AsyncEngine:
        engine = AsyncEngine(EngineConfig(model=str(model), max_model_len=512))
        await engine.start()
        return engine

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)

    def ask(self, prompt: Ids | Text, sampling: SamplingParams) -> Heard:
        """Return the whole reply."""
        return self.run(hear(self.engine.generate(prompt, sampling)))

    def close(self) -> None:
        self.run(self.engine.close())
        self._runner.close()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """An engine on the damaged model."""
    path = write_tiny_model(tmp_path_factory.mktemp("model") / "damaged.gguf", damaged=DAMAGED)
    served = Served(path)
    yield served
    served.close()


def drawn(seed: int, **more: Any) -> SamplingParams:
    """Return sampling that draws 12 tokens."""
    return SamplingParams(seed=seed, max_tokens=12, ignore_eos=True, **more)


def test_seeds_and_settings_draw_the_same_tokens_alone_and_in_a_batch_of_sixteen(served: Served) -> None:
    """Sixteen requests that differ in everything, and as many paths of one request: seeds that follow on."""
    prompts = [ids_prompt(seed % 4, 20 + seed) for seed in range(16)]
    kinds: list[dict[str, Any]] = [
        {},
        {"presence_penalty": 1.5, "frequency_penalty": 0.5},
        {"repetition_penalty": 1.4, "logprobs": 2},
        {"allowed_token_ids": tuple(range(500, 900)), "logit_bias": ((600, 4.0), (601, -100.0))},
    ]
    each = [drawn(2**64 - 8 + seed if seed < 8 else seed - 8, **kinds[seed // 4]) for seed in range(16)]
    alone = [served.ask(prompt, sampling).ids for prompt, sampling in zip(prompts, each, strict=True)]
    together = served.run(hear_all(served.engine, prompts, each))
    assert [reply.ids for reply in together] == alone
    assert all(set(ids) <= {*range(500, 900)} - {601} for ids in alone[12:])


def test_penalties_and_bias_change_what_is_drawn(served: Served) -> None:
    """Against a run of one token that greedy would repeat."""
    prompt = ids_prompt(1, 30)
    favourite = 700
    held = served.ask(prompt, greedy(12, logit_bias=((favourite, 100.0),))).ids
    assert held == [favourite] * 12
    tired = greedy(12, logit_bias=((favourite, 100.0),), frequency_penalty=2.0, presence_penalty=2.0)
    assert served.ask(prompt, tired).ids == held  # 100 outlasts two each time
    weak = greedy(12, logit_bias=((favourite, 30.0),), frequency_penalty=2.0, presence_penalty=2.0)
    assert 1 < served.ask(prompt, weak).ids.count(favourite) < 12


def test_bad_words_never_come_out(served: Served) -> None:
    """The text that greedy writes is barred, and another one comes."""
    prompt = ids_prompt(2, 30)
    free = served.ask(prompt, greedy(20))
    words = " ".join(free.text.split()[4:6])
    barred = served.ask(prompt, greedy(20, bad_words=(words, "never said")))
    assert words in free.text
    assert words not in barred.text
    assert barred.ids[0] == free.ids[0]
    with pytest.raises(UserError, match="bad_words are"):
        served.ask(prompt, greedy(2, bad_words=tuple(f"{number}" * 500 for number in range(9))))


def test_a_prompt_is_scored_whole_cached_or_not_and_reported_once(served: Served) -> None:
    """Scores come with the first output; a request without output has nothing but them."""
    prompt = ids_prompt(3, 400)
    ids = unpack_ids(prompt.ids)
    cold = served.ask(prompt, greedy(3, prompt_logprobs=2, logprobs=0))
    warm = served.ask(prompt, greedy(3, prompt_logprobs=2, logprobs=0))
    only = served.ask(prompt, SamplingParams(temperature=0.0, max_tokens=0, prompt_logprobs=2))
    assert (cold.cached_tokens, warm.cached_tokens) == (0, 0)
    assert (only.ids, only.text, only.finish, len(cold.ids)) == ([], "", "length", 3)
    for reply in (cold, warm, only):
        assert reply.prompt_logprobs is not None
        assert reply.prompt_logprobs[0] is None
        positions = [position for position in reply.prompt_logprobs if position is not None]
        assert [position.token.id for position in positions] == ids[1:]
        assert all(
            len(position.top) == 2 and position.top[0].logprob >= position.token.logprob for position in positions
        )
    assert warm.prompt_logprobs == cold.prompt_logprobs == only.prompt_logprobs
    again = served.ask(prompt, greedy(3, logprobs=0))
    assert again.cached_tokens == 384
    assert again.prompt_logprobs is None
    assert [position.token.id for position in again.logprobs] == cold.ids
    found = [position.token.logprob for position in again.logprobs]
    assert found == pytest.approx([position.token.logprob for position in cold.logprobs], abs=1e-4)


def test_a_stop_id_is_told_and_a_stop_string_may_stay(served: Served) -> None:
    prompt = ids_prompt(4, 30)
    free = served.ask(prompt, greedy(20))
    end = free.ids[9]
    ended = served.ask(prompt, greedy(20, stop_token_ids=(end,)))
    assert (ended.finish, ended.stop_reason, ended.ids) == ("stop", end, free.ids[: free.ids.index(end) + 1])
    word = free.text[10:14]
    kept = served.ask(prompt, greedy(20, stop=(word,), include_stop_str_in_output=True))
    assert (kept.text, kept.stop_reason) == (free.text[: free.text.index(word) + 4], word)


def test_a_request_whose_logits_are_not_finite_ends_alone(served: Served) -> None:
    """Its neighbours in the same steps go on, and its prompt is not found damaged by the next one."""
    good = ids_prompt(5, 40)
    head = ids_prompt(6, 64)
    bad = Ids(head.ids + pack_ids([DAMAGED] * 40))
    calm = served.ask(good, greedy(40)).ids
    assert served.ask(head, greedy(4)).cached_tokens == 0

    async def work() -> Heard:
        stream = served.engine.generate(good, greedy(40))
        first = await anext(stream)
        with pytest.raises(EngineError, match="not finite") as caught:
            await hear(served.engine.generate(bad, greedy(4)))
        assert caught.value.code == "row_failed"
        rest = await hear(stream)
        return rest._replace(ids=first.ids + rest.ids)

    assert served.run(work()).ids == calm
    assert served.ask(head, greedy(4)).cached_tokens == 0  # what began like it was forgotten
    assert served.run(served.engine.stats()).pages_owned == 0


@pytest.mark.parametrize(
    ("settings", "param"),
    [
        ({"presence_penalty": 2.5}, "presence_penalty"),
        ({"frequency_penalty": float("nan")}, "frequency_penalty"),
        ({"repetition_penalty": 0.0}, "repetition_penalty"),
        ({"logit_bias": ((5, 101.0),)}, "logit_bias"),
        ({"logit_bias": ((5, 1.0), (5, 2.0))}, "logit_bias"),
        ({"logit_bias": ((10**6, 1.0),)}, "logit_bias"),
        ({"allowed_token_ids": (10**6,)}, "allowed_token_ids"),
        ({"allowed_token_ids": tuple(range(1025))}, "allowed_token_ids"),
        ({"bad_words": ("",)}, "bad_words"),
        ({"logprobs": 21}, "logprobs"),
        ({"prompt_logprobs": -1}, "prompt_logprobs"),
    ],
)
def test_what_is_out_of_range_is_named(served: Served, settings: dict[str, Any], param: str) -> None:
    with pytest.raises(UserError) as caught:
        served.ask(ids_prompt(1, 5), msgspec.structs.replace(greedy(2), **settings))
    assert caught.value.param == param
