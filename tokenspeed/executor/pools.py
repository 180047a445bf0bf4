"""Pages of KV memory, and the state of slots, on one device.

Owns the tensors and nothing else. Which request holds which page or slot is the scheduler's
business: this file never sees a request.

Invariant: page tables name pages below `pages_total`; page 0 and slot 0 are padding.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from tokenspeed_kernels.sampling.edits import SlotEdits, edits_of

from tokenspeed.executor.asks import SlotAsks
from tokenspeed.messages.executor import SlotOpening
from tokenspeed.model.layers import KvPages

# A plan may reserve pages for tokens past the longest sequence, which no row will ever reach.
LOOKAHEAD_TOKENS = 64

Ints = np.typing.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class PageShape:
    """What one page of one rank holds: keys and values of `page_tokens` tokens in all layers."""

    layers: int
    page_tokens: int
    kv_heads: int
    head_dim: int
    dtype: torch.dtype

    @property
    def bytes(self) -> int:
        """Memory of one page."""
        return 2 * self.layers * self.page_tokens * self.kv_heads * self.head_dim * self.dtype.itemsize


class PagePool:
    """The KV cache: for each layer two tensors [pages, page_tokens, kv_heads, head_dim]."""

    def __init__(self, shape: PageShape, pages_total: int, device: str = "cpu") -> None:
        """Reserve zeroed pages: kernels read padding, and it must be finite."""
        self.pages_total = pages_total
        sizes = (2, pages_total, shape.page_tokens, shape.kv_heads, shape.head_dim)
        layer_bytes = pages_total * shape.bytes // shape.layers
        blocks = [_zeroed(layer_bytes, device).view(shape.dtype).view(sizes) for _ in range(shape.layers)]
        self.layers = [KvPages(block[0], block[1]) for block in blocks]


def _zeroed(count: int, device: str) -> torch.Tensor:
    if device == "cpu":
        # numpy takes zeroed memory from the operating system, which hands it out on first touch;
        # torch.zeros would write it all now.
        return torch.from_numpy(np.zeros(count, np.uint8))
    return torch.zeros(count, dtype=torch.uint8, device=device)


class PageTables:
    """Which page holds which positions of each slot, as the plans have told. `slots` counts slot 0."""

    def __init__(self, slots: int, max_model_len: int, page_tokens: int) -> None:
        """Reserve everything at once."""
        self.slots = slots
        self.pages_max = -(-(max_model_len + LOOKAHEAD_TOKENS) // page_tokens)
        self.page_table = np.zeros((slots, self.pages_max), np.int64)
        # Entries [0, covered) of a slot's table are written.
        self.covered = np.zeros(slots, np.int64)

    def open(self, opening: SlotOpening) -> None:
        """Take a slot's pages away."""
        self.page_table[opening.slot] = 0
        self.covered[opening.slot] = 0

    def set_pages(self, slots: Ints, indices: Ints, pages: Ints) -> None:
        """Write page-table entries; those of one slot leave no gap."""
        self.page_table[slots, indices] = pages
        np.maximum.at(self.covered, slots, indices + 1)


class SlotPool(PageTables):
    """Per-slot state of the CPU executor: page table, ids, sampling settings.

    `edits` has what slots change about their logits, and their ids: those of the opening and each
    drawn one; its memory is touched only where something is written. `edited` says who changes any.
    """

    def __init__(self, slots: int, max_model_len: int, page_tokens: int) -> None:
        """Reserve everything at once."""
        super().__init__(slots, max_model_len, page_tokens)
        self.last_id = np.zeros(slots, np.int64)
        self.asks = SlotAsks(slots)
        self.edits = SlotEdits.allocate(slots, max_model_len, "cpu")
        self.edited = np.zeros(slots, np.int32)
        self.history: np.typing.NDArray[np.int32] = self.edits.history.numpy()
        self.temperature = np.zeros(slots, np.float32)
        self.top_k = np.zeros(slots, np.int64)
        self.top_p = np.ones(slots, np.float64)
        self.min_p = np.zeros(slots, np.float64)
        self.seed = np.zeros(slots, np.int64)
        self.suppress_until = np.zeros(slots, np.int64)
        self.suppress: list[Ints] = [np.zeros(0, np.int64)] * slots

    def open(self, opening: SlotOpening) -> None:
        """Write everything about a slot; nothing of what it held remains."""
        super().open(opening)
        slot = opening.slot
        self.last_id[slot] = 0
        self.temperature[slot] = opening.temperature
        self.top_k[slot] = opening.top_k
        self.top_p[slot] = opening.top_p
        self.min_p[slot] = opening.min_p
        self.seed[slot] = np.uint64(opening.seed & 0xFFFFFFFFFFFFFFFF).astype(np.int64)
        self.suppress_until[slot] = opening.suppress_until
        self.suppress[slot] = np.frombuffer(bytes(opening.suppress), np.int32).astype(np.int64)
        self.asks.open(opening)
        self.edits.open(opening)
        self.edited[slot] = edits_of(opening)

    def remember(self, slots: Ints, positions: Ints, ids: Ints) -> None:
        """Write the ids that were drawn for `positions`; one beyond the longest sequence goes no further."""
        self.last_id[slots] = ids
        inside = positions < self.history.shape[1]
        self.history[slots[inside], positions[inside]] = ids[inside]
