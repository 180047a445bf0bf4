"""What a request's settings change about its logits, on the CPU.

Owns penalties, bias, allowed ids and bad words of one row; a row without any costs nothing. It does
not know temperature or draws. The order of the changes is that of `SlotOpening`.

Invariant: the result depends on the row's logits, its settings and the ids before its position
alone; nothing is counted from step to step.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from tokenspeed.messages.executor import SlotOpening

Ints = np.typing.NDArray[np.int32]
MINUS_INFINITY = float("-inf")


@dataclass(frozen=True, slots=True)
class Adjustment:
    """Settings of one slot; see `SlotOpening` for their meaning. `bad_words` is one array per sequence."""

    prompt_tokens: int
    presence: float
    frequency: float
    repetition: float
    bias_ids: torch.Tensor
    bias_values: torch.Tensor
    allowed: torch.Tensor
    bad_words: tuple[Ints, ...]


def adjustment(opening: SlotOpening) -> Adjustment | None:
    """Return what `opening` changes about logits, None if that is nothing."""
    penalties = (opening.presence_penalty, opening.frequency_penalty, opening.repetition_penalty)
    if penalties == (0.0, 0.0, 1.0) and not (opening.bias_ids or opening.allowed or opening.bad_word_ids):
        return None
    ends = ints(opening.bad_word_ends)
    return Adjustment(
        opening.prompt_tokens,
        *penalties,
        bias_ids=torch.from_numpy(ints(opening.bias_ids).astype(np.int64)),
        bias_values=torch.from_numpy(np.frombuffer(bytes(opening.bias_values), np.float32).copy()),
        allowed=torch.from_numpy(ints(opening.allowed).astype(np.int64)),
        bad_words=tuple(np.split(ints(opening.bad_word_ids), ends[:-1])) if len(ends) else (),
    )


def adjust(logits: torch.Tensor, settings: Adjustment, before: Ints) -> None:
    """Change `logits` float32 [vocab] in place; `before` are all ids before the one to be drawn.

    Of `before` only what the settings ask for is read, as `SlotOpening.history` brings it.
    """
    reply = before[settings.prompt_tokens :]
    if settings.repetition != 1.0:
        _repetition(logits, settings.repetition, before)
    if (settings.presence, settings.frequency) != (0.0, 0.0):
        ids, counts = np.unique(reply, return_counts=True)
        loss = counts * settings.frequency + settings.presence
        logits[torch.from_numpy(ids).long()] -= torch.from_numpy(loss).float()
    logits[settings.bias_ids] += settings.bias_values
    if len(settings.allowed):
        kept = logits[settings.allowed]
        logits.fill_(MINUS_INFINITY)
        logits[settings.allowed] = kept
    for word in settings.bad_words:
        head = len(word) - 1
        if len(reply) >= head and np.array_equal(reply[len(reply) - head :], word[:head]):
            logits[int(word[head])] = MINUS_INFINITY


def _repetition(logits: torch.Tensor, penalty: float, before: Ints) -> None:
    """Keskar et al., "CTRL" (2019), with the division turned round for negative logits."""
    ids = torch.from_numpy(np.unique(before)).long()
    seen = logits[ids]
    logits[ids] = torch.where(seen > 0, seen / penalty, seen * penalty)


def ints(data: bytes | memoryview) -> Ints:
    """Return int32 bytes as an array of its own."""
    return np.frombuffer(bytes(data), np.int32)
