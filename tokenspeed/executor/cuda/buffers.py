"""The way up and down of a step: pinned buffers, and their counterpart on the device.

Owns the memory that carries a plan's arrays to the GPU and sampled ids back. Host buffers come in
threes, so that a step can be written while two are in flight; whoever writes one has seen the
result of the step that used it before. On the device there is one of each: the stream's order
keeps a step's copy behind the step before.

Invariant: a section lies at the same device address for ever, as the graphs were captured.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from tokenspeed_kernels.step import HEADER_WORDS

COPIES = 3

Words = np.typing.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Sections:
    """A step's arrays, on the host or on the device; all int32.

    Per token: `ids` (-1: the slot has it), `slots`, `positions`, `places`. Per sampled row:
    `sample_tokens` (index of its token), `sample_slots`, `sample_positions` (of the token to draw).
    `tail` takes openings and page entries; `tail_offset` is its first word in the whole.
    """

    whole: torch.Tensor
    ids: torch.Tensor
    slots: torch.Tensor
    positions: torch.Tensor
    places: torch.Tensor
    sample_tokens: torch.Tensor
    sample_slots: torch.Tensor
    sample_positions: torch.Tensor
    tail: torch.Tensor
    tail_offset: int


class HostSections:
    """The same sections as numpy arrays over a pinned buffer."""

    def __init__(self, sections: Sections) -> None:
        """View `sections`, which lie on the host."""
        self.tensor = sections.whole
        self.header: Words = sections.whole[:HEADER_WORDS].numpy()
        self.ids: Words = sections.ids.numpy()
        self.slots: Words = sections.slots.numpy()
        self.positions: Words = sections.positions.numpy()
        self.places: Words = sections.places.numpy()
        self.sample_tokens: Words = sections.sample_tokens.numpy()
        self.sample_slots: Words = sections.sample_slots.numpy()
        self.sample_positions: Words = sections.sample_positions.numpy()
        self.tail: Words = sections.tail.numpy()
        self.tail_offset = sections.tail_offset


class Upload:
    """Staging for steps of at most `tokens` tokens and `samples` sampled rows."""

    def __init__(self, tokens: int, samples: int, tail_words: int, device: str) -> None:
        """Reserve everything; all words are 0, which is a step of padding."""
        words = (tokens, samples, tail_words)
        self.device = _sections(torch.zeros(_total(*words), dtype=torch.int32, device=device), *words)
        pin = device != "cpu"
        pinned = [torch.zeros(_total(*words), dtype=torch.int32, pin_memory=pin) for _ in range(COPIES)]
        self.host = [HostSections(_sections(buffer, *words)) for buffer in pinned]

    def send(self, copy: int, tail_words: int) -> None:
        """Start the copy of host buffer `copy`, up to `tail_words` of its tail."""
        words = self.device.tail_offset + tail_words
        self.device.whole[:words].copy_(self.host[copy].tensor[:words], non_blocking=True)


class Download:
    """Where sampled ids come down: one pinned buffer per copy."""

    def __init__(self, samples: int, device: str) -> None:
        """Reserve int32 [samples] three times, for a `device`."""
        pin = device != "cpu"
        self._pinned = [torch.zeros(samples, dtype=torch.int32, pin_memory=pin) for _ in range(COPIES)]

    def fetch(self, copy: int, ids: torch.Tensor) -> None:
        """Start the copy of `ids`."""
        self._pinned[copy][: len(ids)].copy_(ids, non_blocking=True)

    def read(self, copy: int, count: int) -> Words:
        """Return the first `count` ids; their step has ended."""
        ids: Words = self._pinned[copy].numpy()[:count].copy()
        return ids


def _total(tokens: int, samples: int, tail_words: int) -> int:
    return _tail_offset(tokens, samples) + tail_words


def _tail_offset(tokens: int, samples: int) -> int:
    # Openings hold 8-byte numbers.
    return (HEADER_WORDS + 4 * tokens + 3 * samples + 1) & ~1


def _sections(whole: torch.Tensor, tokens: int, samples: int, tail_words: int) -> Sections:
    sizes = [HEADER_WORDS, tokens, tokens, tokens, tokens, samples, samples, samples]
    parts = whole[: sum(sizes)].split(sizes)
    offset = _tail_offset(tokens, samples)
    return Sections(whole, *parts[1:], whole[offset : offset + tail_words], offset)
