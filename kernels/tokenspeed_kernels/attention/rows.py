"""Where the rows of one step lie: what attention is told besides queries and pages.

A step on the CPU is one `AttentionRows`. A step on a device is `SlotRows`: decode rows, which live
in device memory at fixed addresses so that a graph can be replayed, and extend rows, which the host
knows, since steps with several queries a row run eagerly. What depends on the step alone is computed
by the first layer and kept here for the others.

Invariant: nothing here is written after a layer has read it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar, cast

import numpy as np
import torch

Key = TypeVar("Key")
Prepared = TypeVar("Prepared")
Ints = np.typing.NDArray[np.int32]

# Decode rows are scanned as one vector, and no more are in a step.
DECODE_ROWS_MAX = 1024


class AttentionRows:
    """Where the rows of one step lie: built once, read by every layer.

    `queries` and `context` are int64 [rows] on the CPU: tokens of a row in this step, and tokens in
    the pages before them. `page_table` is int64 [rows, pages]: entry i of a row holds positions
    [i * page_tokens, (i + 1) * page_tokens); entries behind the last position are 0. Rows follow
    each other in the step's tokens.
    """

    def __init__(self, queries: torch.Tensor, context: torch.Tensor, page_table: torch.Tensor) -> None:
        """Keep the three tensors; the caller no longer writes to them."""
        self.queries = queries
        self.context = context
        self.page_table = page_table
        self._prepared: dict[object, object] = {}

    def prepared(self, prepare: Callable[[AttentionRows, int], Prepared], page_tokens: int) -> Prepared:
        """Return `prepare(self, page_tokens)`, computed by the first layer that asks."""
        if prepare not in self._prepared:
            self._prepared[prepare] = prepare(self, page_tokens)
        return cast("Prepared", self._prepared[prepare])


@dataclass(frozen=True, slots=True, eq=False)
class DecodeRows:
    """Rows of one query each, described in device memory; int32, contiguous.

    Row i's query stands at `positions[i]` of slot `slots[i]` and sees keys 0 to `positions[i]`. Entry
    j of a slot's line in `page_table` [slots, pages_max] is the page of positions
    [j * page_tokens, (j + 1) * page_tokens). A padding row is slot 0 at position 0: it reads page 0.
    """

    slots: torch.Tensor
    positions: torch.Tensor
    page_table: torch.Tensor

    @property
    def count(self) -> int:
        """Rows, padding included; also their queries."""
        return self.slots.shape[0]


@dataclass(frozen=True, slots=True, eq=False)
class ExtendRows:
    """Rows of one or more queries each, described on the host; int32, contiguous.

    Row i brings `counts[i]` queries behind `contexts[i]` tokens, all of whose keys are in the pages:
    its query j sees keys 0 to `contexts[i] + j`. `table` [rows, pages] holds its pages; entries
    behind its last position are not read. Queries follow each other, row after row.
    """

    counts: Ints
    contexts: Ints
    table: Ints
    _prepared: dict[object, object] = field(default_factory=dict, init=False, repr=False)

    @property
    def lengths(self) -> Ints:
        """Keys that the last query of each row sees."""
        return self.contexts + self.counts

    def prepared(self, prepare: Callable[[ExtendRows, Key], Prepared], key: Key) -> Prepared:
        """Return `prepare(self, key)`, computed by the first layer that asks with this `key`."""
        wanted = (prepare, key)
        if wanted not in self._prepared:
            self._prepared[wanted] = prepare(self, key)
        return cast("Prepared", self._prepared[wanted])


@dataclass(frozen=True, slots=True, eq=False)
class SlotRows:
    """A step on a device: its first tokens are the decode rows' queries, the rest the extend rows'."""

    decode: DecodeRows | None = None
    extend: ExtendRows | None = None
