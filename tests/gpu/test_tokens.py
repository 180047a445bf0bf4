"""The demo model in float32 on a GPU: the tokens of the CPU engine, however the engine comes to them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from tokenspeed_kernels.sampling.philox import gumbel_all

from tests.conftest import Record
from tests.e2e.harness import Heard, hear, hear_all, run
from tests.e2e.test_equal_tokens import prompt_ids
from tests.reference import TOLERANCE, Reference
from tokenspeed.engine import AsyncEngine
from tokenspeed.messages.base import pack_ids
from tokenspeed.messages.tokenizer import Ids
from tokenspeed.sampling import SamplingParams

TOKENS = 64
BATCH = 16
FORKS_PER_TOKENS = 1 / 1000
GREEDY = {"temperature": 0.0}
SAMPLED = {"temperature": 0.8, "top_p": 0.95, "top_k": 50}
HOT = {"temperature": 1.0}
STYLES = {"greedy": GREEDY, "sampled": SAMPLED, "hot": HOT}


class Way(NamedTuple):
    """Replies to all prompts by one way."""

    name: str
    replies: list[Heard]


def _sampling(style: str, number: int) -> SamplingParams:
    settings: dict[str, Any] = STYLES[style]
    return SamplingParams(max_tokens=TOKENS, seed=1000 + number, ignore_eos=True, **settings)


def _prompts(model: Path) -> list[list[int]]:
    return list(prompt_ids(model).values())


@cache
def _on_the_cpu(model: Path, style: str) -> list[list[int]]:
    """Return what the CPU engine says to each prompt."""
    prompts = _prompts(model)

    async def work(engine: AsyncEngine) -> list[list[int]]:
        streams = [engine.generate(Ids(pack_ids(ids)), _sampling(style, number)) for number, ids in enumerate(prompts)]
        return [(await hear(stream)).ids for stream in streams]

    return run(work, model, device="cpu", dtype="float32")


def _every_way(model: Path, style: str, overlap: int) -> list[Way]:
    """Return the GPU's replies alone and in batches, each cold and warm."""
    prompts = [Ids(pack_ids(ids)) for ids in _prompts(model)]
    sampling = [_sampling(style, number) for number in range(len(prompts))]

    async def work(engine: AsyncEngine) -> list[Way]:
        ways = {name: list[Heard]() for name in ("alone, cold", "alone, warm", "batched, cold", "batched, warm")}
        for prompt, settings in zip(prompts, sampling, strict=True):
            await engine.flush_cache()
            for name in ("alone, cold", "alone, warm"):
                ways[name].append(await hear(engine.generate(prompt, settings)))
        await engine.flush_cache()
        for name in ("batched, cold", "batched, warm"):
            for first, last in pairwise([*range(0, len(prompts), BATCH), len(prompts)]):
                ways[name] += await hear_all(engine, prompts[first:last], sampling[first:last])
        return [Way(name, replies) for name, replies in ways.items()]

    return run(work, model, device="cuda", dtype="float32", overlap=overlap, gpu_memory_utilization=0.5)


def _tolerated(reference: Reference, style: str, number: int, prompt: Sequence[int], ids: Sequence[int]) -> bool:
    """Whether the last of `ids` is as good as the best at its place, within what rounding may turn."""
    settings = _sampling(style, number)
    logits = reference.logits([*prompt, *ids[:-1]])[-1:].clone()
    scores = logits
    if settings.temperature > 0:
        seed, position = torch.tensor([settings.seed]), torch.tensor([len(prompt) + len(ids) - 1])
        scores = logits / settings.temperature + gumbel_all(seed, position, logits.shape[1])
        scores = scores.masked_fill(~_kept(logits[0] / settings.temperature, settings), float("-inf"))
    return bool(scores.max() - scores[0, ids[-1]] <= TOLERANCE / (settings.temperature or 1.0))


def _kept(logits: torch.Tensor, settings: SamplingParams) -> torch.Tensor:
    """Return which tokens top_k and top_p leave; a token at the edge counts as left."""
    ranked = logits.double().softmax(0).sort(descending=True)
    left = ranked.values.clone()
    left[settings.top_k or len(left) :] = 0.0
    before = left.cumsum(0) - left
    kept = torch.zeros_like(logits, dtype=torch.bool)
    kept[ranked.indices[(left > 0) & (before <= settings.top_p * left.sum() + TOLERANCE)]] = True
    return kept


@pytest.mark.parametrize("overlap", [1, 0])
@pytest.mark.parametrize("style", STYLES)
def test_tokens_equal_those_of_the_cpu(demo_model: Path, style: str, overlap: int, proof: Record) -> None:
    """Every way gives the CPU engine's tokens; where two part, the two were a tie within rounding."""
    prompts, wanted = _prompts(demo_model), _on_the_cpu(demo_model, style)
    reference = Reference(demo_model)
    forks, tokens = [], 0
    for way in _every_way(demo_model, style, overlap):
        for number, reply in enumerate(way.replies):
            assert len(reply.ids) == TOKENS, way.name
            tokens += TOKENS
            at = next(
                (i for i, pair in enumerate(zip(reply.ids, wanted[number], strict=True)) if len(set(pair)) > 1), None
            )
            if at is not None:
                for ids in (reply.ids, wanted[number]):
                    assert _tolerated(reference, style, number, prompts[number], ids[: at + 1]), (way.name, number, at)
                forks.append(f"{way.name}: prompt {number}, output {at}")
        if "warm" in way.name:
            assert all(reply.cached_tokens >= (reply.prompt_tokens - 1) // 64 * 64 for reply in way.replies)
    print("\n".join(forks))
    assert len(forks) <= tokens * FORKS_PER_TOKENS
    proof(tokens=tokens, forks=len(forks))
