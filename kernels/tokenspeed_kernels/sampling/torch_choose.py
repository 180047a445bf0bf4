"""`sampling.choose` in torch: what is right, row by row, for the CPU.

Reads the settings of the slots, suppresses, and leaves the drawing to `torch_draw`.
"""

from __future__ import annotations

import torch

from tokenspeed_kernels.sampling import GREEDY_BELOW, Adjusted, DrawRows, SlotSettings
from tokenspeed_kernels.sampling.torch_draw import draw


def choose(
    logits: torch.Tensor,
    settings: SlotSettings,
    slots: torch.Tensor,
    positions: torch.Tensor,
    last_id: torch.Tensor,
    adjusted: Adjusted | None = None,
) -> torch.Tensor:
    """Return int32 ids [rows]; see `ChooseKernel`."""
    finite = logits.sum(dim=1).isfinite()
    places = slots.long()
    if adjusted is not None:
        logits = torch.where((settings.edits[places] != 0).unsqueeze(1), adjusted.logits, logits)
    left = _suppress(torch.where(finite.unsqueeze(1), logits, 0.0), settings, places, positions)
    some = finite & (left > float("-inf")).any(dim=1)
    left[~some] = 0.0
    ids = left.argmax(dim=1)
    hot = (settings.temperature[places] >= GREEDY_BELOW).nonzero().squeeze(1)
    if len(hot):
        ids[hot] = draw(left[hot], _rows(settings, places[hot], positions[hot]))
    chosen = torch.where(some, ids, -1).int()
    known = torch.where(slots > 0, chosen.clamp(min=0), 0)
    last_id[places] = known
    if adjusted is not None:
        kept = positions < adjusted.history.shape[1]
        adjusted.history[places[kept], positions[kept].long()] = known[kept]
    return chosen


def _suppress(
    logits: torch.Tensor, settings: SlotSettings, places: torch.Tensor, positions: torch.Tensor
) -> torch.Tensor:
    for row in (positions < settings.suppress_until[places]).nonzero().squeeze(1).tolist():
        slot = places[row]
        logits[row, settings.suppress[slot, : int(settings.suppress_count[slot])].long()] = float("-inf")
    return logits


def _rows(settings: SlotSettings, places: torch.Tensor, positions: torch.Tensor) -> DrawRows:
    return DrawRows(
        temperature=settings.temperature[places],
        top_k=settings.top_k[places].long(),
        top_p=settings.top_p[places],
        min_p=settings.min_p[places],
        seed=settings.seed[places],
        position=positions.long(),
    )
