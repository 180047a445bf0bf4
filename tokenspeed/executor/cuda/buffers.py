"""The way up and down of a step: pinned buffers, and their counterpart on the device.

Owns the memory that carries a plan's arrays to the GPU and sampled ids back. Host buffers come in
threes, so that a step can be written while two are in flight; whoever writes one has seen the
result of the step that used it before. On the device there is one of each: the stream's order
keeps a step's copy behind the step before.

Invariant: a section lies at the same device address for ever, as the graphs were captured.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import torch
from tokenspeed_kernels.sampling import ENTRY_WORDS
from tokenspeed_kernels.step import HEADER_WORDS

COPIES = 3

Words = np.typing.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Sections:
    """A step's arrays within one buffer, on the host or on the device; all int32.

    Per token: `ids` (-1: the slot has it), `slots`, `positions`, `places`. Per sampled row:
    `sample_tokens` (index of its token), `sample_slots`, `sample_positions` (of the token to draw).
    The header is at the start of `whole`, openings and page entries begin at word `tail_at`.
    """

    whole: torch.Tensor
    ids: torch.Tensor
    slots: torch.Tensor
    positions: torch.Tensor
    places: torch.Tensor
    sample_tokens: torch.Tensor
    sample_slots: torch.Tensor
    sample_positions: torch.Tensor
    tail_at: int


class HostSections:
    """The same sections as numpy arrays over a pinned buffer."""

    def __init__(self, sections: Sections) -> None:
        """View `sections`, which lie on the host."""
        self.tensor = sections.whole
        self.words: Words = sections.whole.numpy()
        self.ids: Words = sections.ids.numpy()
        self.slots: Words = sections.slots.numpy()
        self.positions: Words = sections.positions.numpy()
        self.places: Words = sections.places.numpy()
        self.sample_tokens: Words = sections.sample_tokens.numpy()
        self.sample_slots: Words = sections.sample_slots.numpy()
        self.sample_positions: Words = sections.sample_positions.numpy()
        self.tail_at = sections.tail_at


class Upload:
    """Staging for steps of at most `tokens` tokens and `samples` sampled rows."""

    def __init__(self, tokens: int, samples: int, tail_words: int, device: str) -> None:
        """Reserve everything; all words are 0, which is a step of padding."""
        sizes = (HEADER_WORDS, tokens, tokens, tokens, tokens, samples, samples, samples)
        words = (sum(sizes) + tail_words + 1) & ~1  # 8-byte numbers are read from it
        pin = device != "cpu"
        self.device = _sections(torch.zeros(words, dtype=torch.int32, device=device), sizes)
        pinned = [torch.zeros(words, dtype=torch.int32, pin_memory=pin) for _ in range(COPIES)]
        self.host = [HostSections(_sections(buffer, sizes)) for buffer in pinned]

    def send(self, copy: int, words: int) -> None:
        """Start the copy of the first `words` of host buffer `copy`."""
        self.device.whole[:words].copy_(self.host[copy].tensor[:words], non_blocking=True)


class Download:
    """Where sampled ids, and entries of log-probabilities, come down: pinned buffers for each copy."""

    def __init__(self, samples: int, device: str) -> None:
        """Reserve int32 [samples] and [samples, ENTRY_WORDS] three times, for a `device`."""
        pin = device != "cpu"

        def pinned(*shape: int) -> list[torch.Tensor]:
            return [torch.zeros(shape, dtype=torch.int32, pin_memory=pin) for _ in range(COPIES)]

        self._ids, self._entries = pinned(samples), pinned(samples, ENTRY_WORDS)

    def fetch(self, copy: int, ids: torch.Tensor, entries: torch.Tensor | None = None) -> None:
        """Start the copy of `ids` [n], and of `entries` [n, ENTRY_WORDS] if there are."""
        self._ids[copy][: len(ids)].copy_(ids, non_blocking=True)
        if entries is not None:
            self._entries[copy][: len(entries)].copy_(entries, non_blocking=True)

    def read(self, copy: int, count: int) -> Words:
        """Return the first `count` ids; their step has ended."""
        ids: Words = self._ids[copy].numpy()[:count].copy()
        return ids

    def read_entries(self, copy: int, count: int) -> Words:
        """Return a view of the first `count` entries, valid until the copy is used again."""
        entries: Words = self._entries[copy].numpy()[:count]
        return entries


def _sections(whole: torch.Tensor, sizes: tuple[int, ...]) -> Sections:
    starts = list(accumulate(sizes))
    parts = [whole[start : start + size] for start, size in zip(starts, sizes[1:], strict=False)]
    ids, slots, positions, places, sample_tokens, sample_slots, sample_positions = parts
    return Sections(
        whole, ids, slots, positions, places, sample_tokens, sample_slots, sample_positions, tail_at=sum(sizes)
    )
