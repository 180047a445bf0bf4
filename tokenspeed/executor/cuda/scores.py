"""Tokens of prompts that are scored in a step.

Owns the list of such tokens and its way up and down: steps that score are rare, so their lists travel by
themselves, in page-locked memory that torch keeps until the device has read it. How likely an id is
the kernel says.

Invariant: lists are filled up to whole slices of `SLICE_ROWS`, so that the head meets one size.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from tokenspeed.executor.asks import SlotAsks
from tokenspeed.executor.batch import Plan, Tokens
from tokenspeed.executor.cuda.buffers import Words
from tokenspeed.executor.pools import Ints

# Logits [rows, vocab] are float32 and large: so many rows are scored at a time, however long the prompt.
SLICE_ROWS = 256


@dataclass(frozen=True, slots=True)
class Scored:
    """Tokens to score, in the order of the plan; `tops` [n] is how many likeliest ids each brings along.

    `words` is int32 [3, n and padding]: index of the token on the device, its slot, and where the id
    behind it lies in the histories of all slots.
    """

    words: Words
    tops: Ints

    def send(self, device: str) -> torch.Tensor:
        """Start the copy of `words` to `device`."""
        pinned = torch.empty(self.words.shape, dtype=torch.int32, pin_memory=device != "cpu")
        pinned.numpy()[:] = self.words
        return pinned.to(device, non_blocking=True)

    def fetch(self, entries: torch.Tensor) -> torch.Tensor:
        """Start the copy of the tokens' `entries` to the host, and return where they will lie."""
        found = entries[: len(self.tops)]
        pinned = torch.empty(found.shape, dtype=torch.int32, pin_memory=entries.device.type != "cpu")
        return pinned.copy_(found, non_blocking=True)


def padding(tokens: int) -> Scored:
    """Return a list of `tokens` tokens of padding, filled up; none is told of."""
    return Scored(np.zeros((3, _whole(tokens)), np.int32), np.full(tokens, -1, np.int64))


def scored(plan: Plan, tokens: Tokens, order: Ints, asks: SlotAsks, positions: int) -> Scored | None:
    """Return what `plan` scores, None for nothing; `order` [tokens] is where each token lies on the device.

    A history has `positions` ids. The last token of a prompt scores nothing: the id behind it is drawn.
    """
    slots = plan.slots[tokens.rows]
    chosen = (plan.score[tokens.rows] & (tokens.positions + 1 < asks.prompt_tokens[slots])).nonzero()[0]
    if not len(chosen):
        return None
    words = np.zeros((3, _whole(len(chosen))), np.int32)
    slots = slots[chosen]
    words[:, : len(chosen)] = (order[chosen], slots, slots * positions + tokens.positions[chosen] + 1)
    return Scored(words, asks.prompt_logprobs[slots])


def _whole(tokens: int) -> int:
    return -(-tokens // SLICE_ROWS) * SLICE_ROWS
