"""The prologue of a step: what one upload changes on the device before the model runs.

`step.apply` opens slots, writes page-table entries and puts in the ids that the step before left in
the slots. This file owns the layout of the upload, an int32 array: a header of `HEADER_WORDS` at its
start, and a tail of opening records and page entries wherever the header says. The words between
are the executor's, which keeps its token sections at addresses of its own there.

    | counts, offsets |  ids, slots, ... of the tokens  | openings (8-byte aligned) | page entries |
    0                 HEADER_WORDS                      at

Invariant: `pack_tail` writes what `step.apply` reads; both take every offset from `OPENING`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch

from tokenspeed_kernels.platforms import CPU, GPU
from tokenspeed_kernels.sampling import SUPPRESS_MAX, SlotSettings
from tokenspeed_kernels.sampling.edits import EditOpening, edits_of
from tokenspeed_kernels.selection import Selector
from tokenspeed_kernels.spec import KernelError, KernelSpec, ask

Words = np.typing.NDArray[np.int32]

HEADER_WORDS = 8
HEADER_OPENINGS, HEADER_OPENINGS_AT, HEADER_PAGES, HEADER_PAGES_AT = range(4)

OPENING = np.dtype(
    [
        ("slot", np.int32),
        ("top_k", np.int32),
        ("suppress_until", np.int32),
        ("suppress_count", np.int32),
        ("seed", np.uint64),
        ("top_p", np.float64),
        ("min_p", np.float64),
        ("temperature", np.float32),
        ("edits", np.int32),
        ("logprobs", np.int32),
        ("prompt_logprobs", np.int32),
        ("suppress", np.int32, (SUPPRESS_MAX,)),
    ]
)
"""One slot opening; of `suppress` the first `suppress_count` ids count."""
OPENING_WORDS = OPENING.itemsize // 4

PAGE_WORDS = 4
PAGE_SLOT, PAGE_GROUP, PAGE_INDEX, PAGE_PAGE = range(PAGE_WORDS)

INT32_MAX = 2**31 - 1


def opening_word(name: str) -> int:
    """Return the word of an opening record at which the field `name` starts."""
    fields = OPENING.fields
    assert fields is not None
    return fields[name][1] // 4


class Opening(EditOpening, Protocol):
    """Everything about a slot that a request takes; `suppress` is int32 bytes.

    An upload says only whether a slot has edits; what they are is `SlotEdits.open`'s business.
    """

    @property
    def seed(self) -> int: ...
    @property
    def temperature(self) -> float: ...
    @property
    def top_p(self) -> float: ...
    @property
    def top_k(self) -> int: ...
    @property
    def min_p(self) -> float: ...
    @property
    def suppress_until(self) -> int: ...
    @property
    def suppress(self) -> bytes: ...
    @property
    def logprobs(self) -> int: ...
    @property
    def prompt_logprobs(self) -> int: ...


def tail_words(openings: int, pages: int) -> int:
    """Return how many words a tail takes at most, wherever it starts."""
    return 1 + openings * OPENING_WORDS + pages * PAGE_WORDS


def pack_tail(words: Words, at: int, openings: Sequence[Opening], pages: Words) -> int:
    """Write the header and, from word `at` on, the tail; return the first word after it.

    `words` starts 8-byte aligned; `pages` is int32 [n, PAGE_WORDS]. No slot is opened twice and no
    table entry written twice, for all of a tail is applied at once. Raises `KernelError` for an
    opening that suppresses more than `SUPPRESS_MAX` ids.
    """
    openings_at = at + at % 2
    pages_at = openings_at + len(openings) * OPENING_WORDS
    end = pages_at + pages.size
    words[:HEADER_WORDS] = (len(openings), openings_at, len(pages), pages_at, 0, 0, 0, 0)
    if openings:
        _pack_openings(words[openings_at:pages_at].view(OPENING), openings)
    words[pages_at:end] = pages.reshape(-1)
    return end


def _pack_openings(records: np.typing.NDArray[np.void], openings: Sequence[Opening]) -> None:
    for name in ("slot", "top_p", "min_p", "temperature", "logprobs", "prompt_logprobs"):
        records[name] = [getattr(opening, name) for opening in openings]
    # A count past the longest sequence or vocabulary means "always" or "all", whatever its size.
    for name in ("top_k", "suppress_until"):
        records[name] = [min(getattr(opening, name), INT32_MAX) for opening in openings]
    records["edits"] = [edits_of(opening) for opening in openings]
    records["seed"] = [opening.seed & 0xFFFFFFFFFFFFFFFF for opening in openings]
    for record, opening in zip(records, openings, strict=True):
        count = len(opening.suppress) // 4
        if count > SUPPRESS_MAX:
            raise KernelError(f"slot {opening.slot} suppresses {count} ids, at most {SUPPRESS_MAX} are allowed.")
        record["suppress_count"] = count
        record["suppress"][:count] = np.frombuffer(opening.suppress, np.int32)


class ApplyKernel(Protocol):
    """Applies an upload."""

    def __call__(
        self,
        upload: torch.Tensor,
        ids: torch.Tensor,
        slots: torch.Tensor,
        settings: SlotSettings,
        page_table: torch.Tensor,
        last_id: torch.Tensor,
    ) -> None:
        """Open slots, write page entries, and replace ids of -1 by `last_id` of the token's slot.

        `upload` is int32 [words], starts 8-byte aligned and holds an even number of words; `ids` and
        `slots` are int32 [tokens], parts of it or not; `page_table` is int32 [slots, pages_max],
        `last_id` int32 [slots]. Page entries of groups other than 0 are left out. Neither `last_id`
        nor a table's old entries change when a slot is opened: its request brings its ids, and reads
        no further than the pages that it was given.
        """
        ...


def apply(kernels: Selector) -> ApplyKernel:
    """Return the kernel of `step.apply`."""
    return kernels.select_kernel(ask("step", "apply", torch.int32))


SPECS = (
    KernelSpec(
        name="torch_apply",
        family="step",
        mode="apply",
        solution="torch",
        entry="tokenspeed_kernels.step.torch_apply:apply",
        capability=CPU,
        dtypes=frozenset({torch.int32}),
        tags=frozenset({"reference"}),
    ),
    KernelSpec(
        name="triton_apply",
        family="step",
        mode="apply",
        solution="triton",
        entry="tokenspeed_kernels.step.triton_apply:apply",
        requires=("triton",),
        capability=GPU,
        dtypes=frozenset({torch.int32}),
        tags=frozenset({"latency", "throughput"}),
    ),
)
