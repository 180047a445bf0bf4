"""`step.apply` in torch and numpy: what is right, record by record, for the CPU."""

from __future__ import annotations

import numpy as np
import torch

from tokenspeed_kernels.sampling import SlotSettings
from tokenspeed_kernels.step import (
    HEADER_OPENINGS,
    HEADER_OPENINGS_AT,
    HEADER_PAGES,
    HEADER_PAGES_AT,
    HEADER_WORDS,
    OPENING,
    OPENING_WORDS,
    PAGE_GROUP,
    PAGE_INDEX,
    PAGE_PAGE,
    PAGE_SLOT,
    PAGE_WORDS,
    Words,
)

# Fields that slots have as openings do.
SCALARS = (
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "suppress_until",
    "suppress_count",
    "edits",
    "logprobs",
    "prompt_logprobs",
)


def apply(
    upload: torch.Tensor,
    ids: torch.Tensor,
    slots: torch.Tensor,
    settings: SlotSettings,
    page_table: torch.Tensor,
    last_id: torch.Tensor,
) -> None:
    """See `ApplyKernel`."""
    words = upload.numpy()
    header = words[:HEADER_WORDS].tolist()
    start, count = header[HEADER_OPENINGS_AT], header[HEADER_OPENINGS]
    for record in words[start : start + count * OPENING_WORDS].view(OPENING):
        _open(record, settings)
    start, count = header[HEADER_PAGES_AT], header[HEADER_PAGES]
    _write_pages(words[start : start + count * PAGE_WORDS].reshape(-1, PAGE_WORDS), page_table)
    ids.copy_(torch.where(ids < 0, last_id[slots.long()], ids))


def _open(record: np.void, settings: SlotSettings) -> None:
    slot, count = int(record["slot"]), int(record["suppress_count"])
    for name in SCALARS:
        getattr(settings, name)[slot] = record[name].item()
    settings.seed[slot] = record["seed"].astype(np.int64).item()
    settings.suppress[slot, :count] = torch.from_numpy(record["suppress"][:count].copy())


def _write_pages(entries: Words, page_table: torch.Tensor) -> None:
    entries = entries[entries[:, PAGE_GROUP] == 0]
    page_table.numpy()[entries[:, PAGE_SLOT], entries[:, PAGE_INDEX]] = entries[:, PAGE_PAGE]
