"""Penalties, bias, allowed ids and bad words against a slow reference in float64."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenspeed.executor.adjust import adjust, adjustment
from tokenspeed.messages.base import pack_ids
from tokenspeed.messages.executor import SlotOpening

VOCAB = 13
IDS = st.integers(0, VOCAB - 1)
PENALTY = st.sampled_from([0.0, 0.0, -2.0, 0.5, 1.25])


def opening(**changes: Any) -> SlotOpening:
    """Return an opening whose bad words, bias and allowed ids are given as lists."""
    words: list[list[int]] = changes.pop("bad_words", [])
    bias: dict[int, float] = changes.pop("bias", {})
    values: dict[str, Any] = {"seed": 0, "temperature": 0.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0}
    values |= {"suppress_until": 0, "suppress": b"", "allowed": pack_ids(changes.pop("allowed", []))}
    values |= {"bias_ids": pack_ids(bias), "bias_values": np.array(list(bias.values()), np.float32).tobytes()}
    values["bad_word_ids"] = pack_ids(token for word in words for token in word)
    values["bad_word_ends"] = pack_ids(np.cumsum([len(word) for word in words], dtype=int))
    return SlotOpening(slot=1, request=1, **values, **changes)


def reference(
    logits: Sequence[float],
    before: list[int],
    prompt_tokens: int,
    penalties: tuple[float, float, float],
    bias: dict[int, float],
    allowed: list[int],
    bad_words: list[list[int]],
) -> list[float]:
    """Return the changed logits, id by id, in the order that `SlotOpening` names."""
    presence, frequency, repetition = penalties
    reply = before[prompt_tokens:]
    changed = []
    for token, logit in enumerate(logits):
        value = float(logit)
        if token in before:
            value = value / repetition if value > 0 else value * repetition
        if token in reply:
            value -= reply.count(token) * frequency + presence
        value += bias.get(token, 0.0)
        barred = any(word[-1] == token and _ends_with(reply, word[:-1]) for word in bad_words)
        changed.append(-math.inf if barred or (allowed and token not in allowed) else value)
    return changed


def _ends_with(reply: list[int], head: list[int]) -> bool:
    return len(reply) >= len(head) and reply[len(reply) - len(head) :] == head


@given(
    seed=st.integers(0, 2**32 - 1),
    before=st.lists(IDS, max_size=30),
    prompt_share=st.floats(0, 1),
    penalties=st.tuples(PENALTY, PENALTY, st.sampled_from([1.0, 0.5, 1.3, 10.0])),
    bias=st.dictionaries(IDS, st.sampled_from([-100.0, -0.5, 3.0, 100.0]), max_size=4),
    allowed=st.lists(IDS, unique=True, max_size=6),
    bad_words=st.lists(st.lists(IDS, min_size=1, max_size=3), max_size=5),
)
@settings(max_examples=150, deadline=None)
def test_equal_to_the_reference(
    seed: int,
    before: list[int],
    prompt_share: float,
    penalties: tuple[float, float, float],
    bias: dict[int, float],
    allowed: list[int],
    bad_words: list[list[int]],
) -> None:
    prompt_tokens = int(prompt_share * len(before))
    logits = np.random.default_rng(seed).normal(0, 4, VOCAB).astype(np.float32)
    wanted = reference(logits.tolist(), before, prompt_tokens, penalties, bias, allowed, bad_words)
    names = ("presence_penalty", "frequency_penalty", "repetition_penalty")
    asked = dict(zip(names, penalties, strict=True))
    found = adjustment(opening(prompt_tokens=prompt_tokens, bias=bias, allowed=allowed, bad_words=bad_words, **asked))
    changed = torch.from_numpy(logits.copy())
    if found is not None:
        adjust(changed, found, np.array(before, np.int32))
    assert changed.tolist() == pytest.approx(wanted, rel=1e-6, abs=1e-5)


def test_nothing_asked_is_nothing_to_do() -> None:
    assert adjustment(opening(logprobs=3, prompt_tokens=9, history=pack_ids([1]))) is None


@pytest.mark.parametrize(
    ("reply", "barred"), [([], []), ([7], [8]), ([7, 8], [9]), ([8], []), ([6, 7], [8]), ([7, 8, 7], [8])]
)
def test_a_bad_word_is_barred_at_its_last_id_and_begins_in_the_reply(reply: list[int], barred: list[int]) -> None:
    found = adjustment(opening(prompt_tokens=2, bad_words=[[7, 8], [7, 8, 9]]))
    assert found is not None
    logits = torch.zeros(VOCAB)
    adjust(logits, found, np.array([7, 7, *reply], np.int32))
    assert logits.isinf().nonzero()[:, 0].tolist() == barred
