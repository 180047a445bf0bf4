"""What slots ask for beside an id, as the host knows it.

Owns the mirror of a few settings by which the host sizes a step: the device has its own of all of
them. It does not know what is done to logits.

Invariant: a slot's numbers are those of its last opening.
"""

from __future__ import annotations

import numpy as np
from tokenspeed_kernels.sampling.edits import edits_of

from tokenspeed.executor.pools import Ints
from tokenspeed.messages.executor import SlotOpening


class SlotAsks:
    """Arrays by slot: `full`, whether its choices take more than the plain end of a step.

    `logprobs`, `prompt_logprobs` and `prompt_tokens` are as in `SlotOpening`.
    """

    def __init__(self, slots: int) -> None:
        """Nobody asks for anything."""
        self.full = np.zeros(slots, np.bool_)
        self.logprobs: Ints = np.full(slots, -1, np.int64)
        self.prompt_logprobs: Ints = np.full(slots, -1, np.int64)
        self.prompt_tokens: Ints = np.zeros(slots, np.int64)

    def open(self, opening: SlotOpening) -> None:
        """Note what `opening` asks for."""
        slot = opening.slot
        self.full[slot] = edits_of(opening) != 0 or opening.logprobs >= 0
        self.logprobs[slot] = opening.logprobs
        self.prompt_logprobs[slot] = opening.prompt_logprobs
        self.prompt_tokens[slot] = opening.prompt_tokens
