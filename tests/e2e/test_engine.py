"""The engine from prompt to text, over real actors, with a tiny random model."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from tests.conftest import Record
from tests.dummies import SHAPE, write_shape
from tests.e2e.harness import Heard, chat, greedy, hear, hear_all, ids_prompt, run, settled
from tests.tiny import HEAD_DIM, KV_HEADS, LAYERS
from tokenspeed.config import PAGE_TOKENS_CPU, EngineConfig
from tokenspeed.engine import AsyncEngine, Engine
from tokenspeed.errors import EngineError, StartError, UserError
from tokenspeed.messages.base import pack_ids
from tokenspeed.messages.engine import EndId, SchedulerStats
from tokenspeed.messages.tokenizer import Chat, Ids, Text
from tokenspeed.sampling import SamplingParams

PAGE_BYTES = 2 * LAYERS * KV_HEADS * HEAD_DIM * 4 * PAGE_TOKENS_CPU


def test_same_tokens_alone_batched_cold_warm_and_with_every_overlap(tiny_model: Path) -> None:
    prompts = [ids_prompt(seed, 5 + 23 * seed) for seed in range(8)]

    async def alone_then_batched(engine: AsyncEngine) -> list[list[list[int]]]:
        alone = [(await hear(engine.generate(prompt, greedy(24)))).ids for prompt in prompts]
        warm = [(await hear(engine.generate(prompt, greedy(24)))).ids for prompt in prompts]
        batched = [reply.ids for reply in await hear_all(engine, prompts, greedy(24))]
        await engine.flush_cache()
        cold = [reply.ids for reply in await hear_all(engine, prompts, greedy(24))]
        return [alone, warm, batched, cold]

    overlapped = run(alone_then_batched, tiny_model)
    stepwise = run(alone_then_batched, tiny_model, overlap=0)
    assert all(ids == overlapped[0] for ids in overlapped + stepwise)


@pytest.mark.long
def test_retracted_requests_draw_the_same_tokens(tiny_model: Path) -> None:
    prompts = [ids_prompt(seed, 40) for seed in range(5)]
    sampling = SamplingParams(
        seed=11, max_tokens=80, ignore_eos=True, presence_penalty=1.0, repetition_penalty=1.2, logprobs=0
    )

    async def work(engine: AsyncEngine) -> tuple[list[Heard], int]:
        replies = await hear_all(engine, prompts, sampling)
        return replies, (await engine.stats()).retractions

    calm, none = run(work, tiny_model)
    tight, retractions = run(
        work, tiny_model, max_model_len=128, kv_cache_bytes=16 * PAGE_BYTES, admission_growth_tokens=0
    )
    assert none == 0
    assert retractions > 0
    assert [reply.ids for reply in tight] == [reply.ids for reply in calm]
    assert all([position.token.id for position in reply.logprobs] == reply.ids for reply in tight)


def test_whole_prompt_cached_still_draws_the_same_token(tiny_model: Path) -> None:
    async def work(engine: AsyncEngine) -> None:
        for length in (15, 16, 17, 32, 64, 65):
            cold = await hear(engine.generate(ids_prompt(length, length), greedy(3)))
            warm = await hear(engine.generate(ids_prompt(length, length), greedy(3)))
            assert warm.ids == cold.ids
            assert cold.cached_tokens == 0
            assert warm.cached_tokens == (length - 1) // 16 * 16

    run(work, tiny_model)


def test_defaults_and_ends_of_the_model(tiny_model: Path, tmp_path: Path) -> None:
    """A request that says nothing gets what the model's maker recommends: here, greedy ids."""
    (tmp_path / "generation_config.json").write_text('{"temperature": 0.0, "max_new_tokens": 1}')

    async def work(engine: AsyncEngine) -> None:
        assert engine.ends == (EndId(2, "<|im_end|>", ("GGUF eos_token_id", "chat template")),)
        wanted = await hear(engine.generate(ids_prompt(1, 20), SamplingParams(temperature=0.0)))
        assert (await hear(engine.generate(ids_prompt(1, 20)))).ids == wanted.ids
        assert len(wanted.ids) > 1

    run(work, tiny_model, generation_config=str(tmp_path), max_model_len=64)


def test_namespaces_do_not_share_pages(tiny_model: Path) -> None:
    async def work(engine: AsyncEngine) -> None:
        prompt = ids_prompt(1, 100)
        for namespace, cached in (("a", 0), ("b", 0), ("a", 96)):
            reply = await hear(engine.generate(prompt, greedy(2), namespace=namespace))
            assert reply.cached_tokens == cached

    run(work, tiny_model)


async def _cancel_at_random(engine: AsyncEngine, count: int) -> SchedulerStats:
    """Open `count` requests, leave most of them at some moment, and return the counters afterwards."""
    dice = random.Random(5)
    gate = asyncio.Semaphore(24)

    async def one(number: int) -> None:
        prompt = ids_prompt(number % 40, dice.randrange(1, 300))
        async with gate:
            stream = engine.generate(prompt, SamplingParams(max_tokens=dice.randrange(1, 24), ignore_eos=True))
            patience = dice.choice((0.0, 0.002, 0.01, 0.05, None))
            try:
                await asyncio.wait_for(hear(stream), patience)
            except (TimeoutError, EngineError):
                stream.cancel()

    await asyncio.gather(*map(one, range(count)))
    return await settled(engine)


async def _check_all_is_given_back(engine: AsyncEngine, stats: SchedulerStats) -> None:
    assert engine.requests_open == stats.requests_running == stats.requests_waiting == 0
    assert stats.pages_owned == stats.pages_cached_leased == stats.pages_zombie == 0
    assert stats.pages_free + stats.pages_cached_idle == stats.pages_total
    for _ in range(50):  # the last words to the scheduler may be on their way
        if not any(engine.ring_fill().values()):
            break
        await asyncio.sleep(0.02)
    assert set(engine.ring_fill().values()) == {0}


def test_random_cancels_leave_every_page_free_or_cached(tiny_model: Path) -> None:
    async def work(engine: AsyncEngine) -> None:
        await _check_all_is_given_back(engine, await _cancel_at_random(engine, 150))
        await engine.flush_cache()
        assert (await engine.stats()).pages_cached_idle == 0

    run(work, tiny_model)


def test_a_request_that_nobody_waits_for_is_cancelled_when_the_scheduler_accepts_it(tiny_model: Path) -> None:
    async def work(engine: AsyncEngine) -> None:
        steps = (await engine.stats()).steps
        stream = engine.generate(ids_prompt(1, 20), greedy(2000))
        del engine._streams[stream.request]  # its Cancel has died with an older scheduler
        for _ in range(5000):
            if (await engine.stats()).steps > steps:
                break
        assert (await settled(engine)).requests_running == 0

    run(work, tiny_model)


@pytest.mark.prove(shows="1,000 requests with random cancels: free + cached = total, rings empty", limit_s=600)
def test_a_thousand_random_cancels(tiny_model: Path, proof: Record) -> None:
    async def work(engine: AsyncEngine) -> SchedulerStats:
        stats = await _cancel_at_random(engine, 1000)
        await _check_all_is_given_back(engine, stats)
        return stats

    stats = run(work, tiny_model)
    proof(pages_free=stats.pages_free, pages_cached=stats.pages_cached_idle, pages_total=stats.pages_total)


def test_a_bad_request_is_told_why_and_harms_nobody(tiny_model: Path) -> None:
    async def work(engine: AsyncEngine) -> None:
        beside = asyncio.ensure_future(hear(engine.generate(ids_prompt(3, 20), greedy(40))))
        bad = (
            (ids_prompt(1, 2048), "context_length_exceeded", ("2048",)),
            (Chat(b"[]"), "invalid_request", ("messages",)),
            (Chat(b'[{"role":"user","content":7}]'), "invalid_request", ("content",)),
        )
        for prompt, code, words in bad:
            with pytest.raises(UserError) as caught:
                await hear(engine.generate(prompt, greedy(4)))
            assert caught.value.code == code
            assert all(word in caught.value.message for word in words)
        with pytest.raises(UserError, match="temperature"):
            engine.generate(chat("hi"), SamplingParams(temperature=-1.0))
        assert len((await beside).ids) == 40

    run(work, tiny_model)


def test_max_tokens_is_cut_to_the_context_and_says_length(tiny_model: Path) -> None:
    async def work(engine: AsyncEngine) -> Heard:
        return await hear(engine.generate(ids_prompt(2, 2040), greedy(500)))

    reply = run(work, tiny_model)
    assert (len(reply.ids), reply.finish) == (8, "length")


def test_stop_strings_cut_the_text_and_the_count(tiny_model: Path) -> None:
    async def work(engine: AsyncEngine) -> None:
        whole = await hear(engine.generate(ids_prompt(4, 30), greedy(40)))
        stop = whole.text[len(whole.text) // 2 :][:5]
        cut = await hear(engine.generate(ids_prompt(4, 30), greedy(40, stop=(stop,))))
        assert cut.finish == "stop"
        assert cut.text == whole.text[: whole.text.index(stop)]
        assert cut.ids == whole.ids[: len(cut.ids)]
        assert (await settled(engine)).requests_running == 0

    run(work, tiny_model)


def test_what_is_asked_before_the_start_is_told_to_come_again(tiny_model: Path) -> None:
    async def main() -> None:
        engine = AsyncEngine(EngineConfig(model=str(tiny_model)))
        for ask in (engine.stats, engine.flush_cache):
            with pytest.raises(EngineError, match="still loading") as caught:
                await ask()
            assert (caught.value.status, caught.value.code) == (503, "not_ready")
        with pytest.raises(EngineError, match="still loading"):
            engine.generate(ids_prompt(1, 4), greedy(1))
        assert engine.health().state == "starting"

    asyncio.run(main())


def test_synchronous_engine(tiny_model: Path) -> None:
    with Engine(str(tiny_model)) as engine:
        reply = engine.generate("Hello", greedy(12))
        assert (len(reply.ids), reply.finish) == (12, "length")
        assert "".join(output.text for output in engine.stream(Text("Hello"), greedy(12))) == reply.text
        assert engine.chat([{"role": "user", "content": "Hello"}], greedy(3)).completion_tokens == 3
        lengths = [greedy(5), greedy(12)]
        texts = [each.text for each in engine.generate(["Hello", "Hello"], lengths)]
        assert texts == [engine.generate("Hello", greedy(5)).text, reply.text]
        drawn = SamplingParams(seed=3, max_tokens=6, ignore_eos=True)
        ids = engine.tokenize("Hello")
        choices = engine.generate("Hello", drawn, n=2)
        assert [each.ids for each in engine.generate(input_ids=[ids, ids], sampling_params=drawn, n=2)] == [
            each.ids for each in [*choices, *choices]
        ]
        assert choices[1].ids == engine.generate("Hello", drawn.for_choice(1)).ids != choices[0].ids
        assert [each.finish for each in engine.chat([[{"role": "user", "content": "Hello"}]] * 2, greedy(2))] == [
            "length",
            "length",
        ]
        assert engine.detokenize(engine.tokenize(Text("Hello", add_special_tokens=False))) == "Hello"
        with pytest.raises(UserError, match="2048"):
            engine.generate(["Hello", "a b " * 3000], greedy(5))
        half_read = engine.stream("Hello", greedy(12))
        next(half_read)
    half_read.close()  # type: ignore[attr-defined]
    with pytest.raises(EngineError, match="was closed"):
        engine.generate("Hello")
    engine.close()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"model": "/nowhere/at/all"}, "/nowhere/at/all"),
        ({"max_model_len": 1_000_000}, "max_model_len"),
        ({"device": "cpu", "dtype": "float8"}, "float32"),
        ({"load_format": "pickle"}, "auto, safetensors, gguf, dummy are allowed"),
        ({"gpu_memory_utilization": 0.99}, "0.1 to 0.98"),
        ({"kv_cache_bytes": 30 * PAGE_BYTES}, "464"),
    ],
)
def test_a_wrong_setting_stops_the_start(tiny_model: Path, settings: dict[str, object], words: str) -> None:
    async def work(engine: AsyncEngine) -> None:
        raise AssertionError("started")

    with pytest.raises(StartError) as caught:
        run(work, **{"model": tiny_model, **settings})  # type: ignore[arg-type]
    assert words in caught.value.message


def test_dummy_weights_serve_ids_text_and_messages(tmp_path: Path) -> None:
    """With half of the layers and a longer context than config.json says: all actors go by the overrides."""
    overrides = {"num_hidden_layers": 2, "vocab_size": 1030, "rope_scaling": {"rope_type": "yarn", "factor": 2.0}}

    async def work(engine: AsyncEngine) -> list[Heard]:
        assert (engine.checkpoint.layers, engine.model.max_model_len) == (2, 2 * SHAPE["max_position_embeddings"])
        with pytest.raises(UserError, match="0 to 1029 are allowed"):
            await hear(engine.generate(Ids(pack_ids([1030]))))
        prompts = (Ids(pack_ids(range(256, 1024))), Text("Hello"), chat("Hello"))
        return [await hear(engine.generate(prompt, greedy(8))) for prompt in prompts]

    replies = run(work, write_shape(tmp_path), load_format="dummy", device="cpu", hf_overrides=overrides)
    assert [(len(reply.ids), reply.finish) for reply in replies] == [(8, "length")] * 3
    assert all(reply.text for reply in replies)
