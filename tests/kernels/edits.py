"""Slot openings with edits, and what they make of logits in float64, written from the definition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Floats = np.typing.NDArray[np.float64]


@dataclass(frozen=True)
class Edits:
    """What an opening asks to be changed; nothing unless it is said."""

    slot: int
    prompt_tokens: int = 0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    bias_ids: bytes = b""
    bias_values: bytes = b""
    allowed: bytes = b""
    bad_word_ids: bytes = b""
    bad_word_ends: bytes = b""
    history_first: int = 0
    history: bytes = b""


def packed(ids: Sequence[int]) -> bytes:
    """Return int32 bytes."""
    return np.array(ids, np.int32).tobytes()


def biases(pairs: dict[int, float]) -> dict[str, Any]:
    """Return the two fields of `pairs` of id and bias."""
    return {"bias_ids": packed(list(pairs)), "bias_values": np.array(list(pairs.values()), np.float32).tobytes()}


def bad_words(*words: Sequence[int]) -> dict[str, Any]:
    """Return the two fields of `words`."""
    ids = [token for word in words for token in word]
    return {"bad_word_ids": packed(ids), "bad_word_ends": packed(np.cumsum([len(word) for word in words]).tolist())}


def naive(logits: Sequence[float], opening: Edits, history: Sequence[int]) -> Floats:
    """Return what `opening` makes of `logits`, `history` being the ids before the one to be drawn."""
    out = np.array(logits, np.float64)
    reply = list(history[opening.prompt_tokens :])
    if opening.repetition_penalty != 1.0:
        factor = float(np.float32(opening.repetition_penalty))
        for token in set(history):
            out[token] = out[token] / factor if out[token] > 0 else out[token] * factor
    for token in set(reply):
        frequency, presence = np.float32(opening.frequency_penalty), np.float32(opening.presence_penalty)
        out[token] -= reply.count(token) * float(frequency) + float(presence)
    biased = zip(np.frombuffer(opening.bias_ids, np.int32), np.frombuffer(opening.bias_values, np.float32), strict=True)
    for token, bias in biased:
        out[token] += float(bias)
    if opening.allowed:
        kept = np.frombuffer(opening.allowed, np.int32)
        out[[token for token in range(len(out)) if token not in kept]] = -np.inf
    first = 0
    for end in np.frombuffer(opening.bad_word_ends, np.int32).tolist():
        *before, last = np.frombuffer(opening.bad_word_ids, np.int32)[first:end].tolist()
        if not before or reply[-len(before) :] == before:
            out[last] = -np.inf
        first = end
    return out
