"""Both ends of a step: choosing ids at Llama-3.1's vocabulary and what goes with it, and applying an upload.

The logits of a case are one tensor, since in a step the head has just written them. "Zipf" has the
spread of a trained model (the r-th likeliest token has a share of r^-1.5), "flat" is the worst case
of a cut: all is near the maximum. Every call draws at other positions, so rounds vary as they do.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import numpy as np
import torch
from tokenspeed_kernels.sampling import Adjusted, SlotSettings, triton_adjust, triton_choose, triton_logprobs
from tokenspeed_kernels.sampling.edits import SlotEdits, edits_of
from tokenspeed_kernels.step import HEADER_WORDS, pack_tail, tail_words, triton_apply

from tokenspeed.messages.executor import SlotOpening
from tokenspeed_tools.bench_kernels.case import Case

VOCAB = 128256
ROWS = (1, 8, 32, 128, 256)
SLOTS, PAGES_MAX = 257, 2050
CALLS = 64
# temperature, top_k, top_p, min_p
GREEDY = (0.0, 0, 1.0, 0.0)
SAMPLED = (1.0, 0, 1.0, 0.0)
SETTINGS = {
    "greedy": GREEDY,
    "sampled": SAMPLED,
    "top_p 0.95": (0.6, 0, 0.95, 0.0),
    "top_k 20, top_p 0.8": (0.7, 20, 0.8, 0.0),
    "top_k 1000, top_p 0.9": (1.0, 1000, 0.9, 0.0),
    "min_p 0.05": (1.0, 0, 1.0, 0.05),
}
# Ids in a history, and how many likeliest ids come along.
EDITED = (0, 1024, 50_000)
LIKELIEST = (0, 5, 20)
# (openings, page entries, tokens)
UPLOADS = ((0, 0, 1), (0, 2, 128), (1, 800, 8192), (128, 2000, 8192))


def cases() -> Iterator[Case]:
    """Yield choices for every number of rows, then uploads."""
    for rows, (kind, logits) in itertools.product(ROWS, (("Zipf", _zipf), ("flat", _flat))):
        values = logits(rows)
        for name, settings in SETTINGS.items():
            yield Case(f"choose {rows} rows {kind}, {name}", _choice(values, settings), rows * VOCAB * 4)
        if rows in (1, 32, 128):
            for ids in EDITED:
                yield Case(f"adjust {rows} rows {kind}, {ids} ids", _edit(values, ids), rows * VOCAB * 8)
            yield Case(f"choose {rows} rows {kind}, edited", _choice(values, GREEDY, edited=True), rows * VOCAB * 8)
            for top in (-1, *LIKELIEST):
                yield Case(f"logprobs {rows} rows {kind}, top {top}", _told(values, top), rows * VOCAB * 4)
    for openings, pages, tokens in UPLOADS:
        yield Case(f"apply {openings} openings, {pages} pages, {tokens} tokens", _apply(openings, pages, tokens))


def _zipf(rows: int) -> torch.Tensor:
    ranked = -1.5 * torch.arange(1, VOCAB + 1, device="cuda").log()
    return torch.stack([ranked[torch.randperm(VOCAB, device="cuda")] for _ in range(rows)])


def _flat(rows: int) -> torch.Tensor:
    return torch.randn(rows, VOCAB, device="cuda") * 0.5


def _choice(logits: torch.Tensor, row: tuple[float, int, float, float], edited: bool = False) -> Callable[[], object]:
    rows = len(logits)
    settings = SlotSettings.allocate(SLOTS, "cuda")
    for tensor, value in zip((settings.temperature, settings.top_k, settings.top_p, settings.min_p), row, strict=True):
        tensor[1:] = value
    settings.seed.copy_(torch.arange(SLOTS))
    slots = torch.arange(1, rows + 1, dtype=torch.int32, device="cuda")
    last_id = torch.zeros(SLOTS, dtype=torch.int32, device="cuda")
    positions = itertools.cycle(torch.randint(2**17, (CALLS, rows), dtype=torch.int32, device="cuda").unbind())
    adjusted = Adjusted(logits.clone(), torch.zeros(SLOTS, 2**17, dtype=torch.int32, device="cuda")) if edited else None
    settings.edits.fill_(int(edited))
    return lambda: triton_choose.choose(logits, settings, slots, next(positions), last_id, adjusted)


def _edit(logits: torch.Tensor, ids: int) -> Callable[[], object]:
    """Penalise prompt and reply, half of `ids` each; without ids no slot asks for anything."""
    rows = len(logits)
    edits = SlotEdits.allocate(rows + 1, max(ids, 1), "cuda", rows, VOCAB)
    asked = torch.zeros(rows + 1, dtype=torch.int32, device="cuda")
    for slot in range(1, rows + 1) if ids else ():
        history = np.random.default_rng(slot).zipf(1.3, ids) % VOCAB
        opening = _opening(
            slot,
            repetition_penalty=1.1,
            presence_penalty=0.1,
            prompt_tokens=ids // 2,
            history=history.astype(np.int32).tobytes(),
        )
        edits.open(opening)
        asked[slot] = edits_of(opening)
    slots = torch.arange(1, rows + 1, dtype=torch.int32, device="cuda")
    positions = torch.full_like(slots, ids)
    return lambda: triton_adjust.adjust(logits, asked, edits, slots, positions)


def _told(logits: torch.Tensor, top: int) -> Callable[[], object]:
    ids = logits.argmax(1).int()
    tops = torch.full((1,), top, dtype=torch.int32, device="cuda")
    slots = torch.zeros_like(ids)
    return lambda: triton_logprobs.logprobs(logits, ids, slots, tops)


def _opening(slot: int, **edits: Any) -> SlotOpening:
    plain = SlotOpening(
        slot, request=0, seed=1, temperature=0.7, top_p=0.8, top_k=20, min_p=0.0, suppress_until=0, suppress=b""
    )
    return msgspec.structs.replace(plain, **edits)


def _apply(openings: int, pages: int, tokens: int) -> Callable[[], object]:
    places = np.arange(pages)
    entries = np.stack((places % (SLOTS - 1) + 1, 0 * places, places // (SLOTS - 1), places + 1), 1).astype(np.int32)
    words = np.zeros((HEADER_WORDS + tail_words(openings, pages) + 1) // 2 * 2, np.int32)
    pack_tail(words, HEADER_WORDS, [_opening(slot + 1) for slot in range(openings)], entries)
    upload, settings = torch.from_numpy(words).cuda(), SlotSettings.allocate(SLOTS, "cuda")
    slots = torch.arange(tokens, dtype=torch.int32, device="cuda") % SLOTS
    ids = torch.full_like(slots, -1)
    page_table = torch.zeros(SLOTS, PAGES_MAX, dtype=torch.int32, device="cuda")
    last_id = torch.zeros(SLOTS, dtype=torch.int32, device="cuda")
    return lambda: triton_apply.apply(upload, ids, slots, settings, page_table, last_id)
