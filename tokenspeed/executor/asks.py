"""What slots ask for beside an id, as the host knows it.

Owns the mirror of a few settings by which the host sizes a step (a GPU has its own of all of them),
and the form in which entries are reported. It does not know what is done to logits.

Invariant: a slot's numbers are those of its last opening.
"""

from __future__ import annotations

import numpy as np
from tokenspeed_kernels.sampling.edits import edits_of

from tokenspeed.messages.executor import SlotOpening

Ints = np.typing.NDArray[np.int64]
Words = np.typing.NDArray[np.int32]


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


def packed(entries: Words, tops: Ints) -> bytes:
    """Return the first 3 + 2 k words of each of `entries` int32 [n, words], k being its number in `tops`."""
    ends = [*(np.flatnonzero(np.diff(tops)) + 1).tolist(), len(tops)]
    begins = [0, *ends[:-1]]
    return b"".join(
        entries[begin:end, : 3 + 2 * int(tops[begin])].tobytes()
        for begin, end in zip(begins, ends, strict=True)
        if begin < end
    )
