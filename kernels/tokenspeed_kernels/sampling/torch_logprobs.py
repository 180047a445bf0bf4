"""`sampling.logprobs` in torch: what is right, for the CPU."""

from __future__ import annotations

import torch

from tokenspeed_kernels.sampling import ENTRY_WORDS, LOGPROBS_MAX
from tokenspeed_kernels.sampling.torch_draw import ID_MASK, ranking_keys


def logprobs(logits: torch.Tensor, ids: torch.Tensor, slots: torch.Tensor, top: torch.Tensor) -> torch.Tensor:
    """Return int32 [rows, ENTRY_WORDS]; see `LogprobsKernel`."""
    entries = torch.zeros(len(logits), ENTRY_WORDS, dtype=torch.int32)
    wanted = top[slots.long()]
    rows = ((wanted >= 0) & (ids >= 0)).nonzero().squeeze(1)
    if not len(rows):
        return entries
    left, chosen = logits[rows], ids[rows].long().unsqueeze(1)
    total = left.double().logsumexp(dim=1, keepdim=True)
    entries[rows, 0] = ids[rows]
    entries[rows, 1] = 1 + (left > left.gather(1, chosen)).sum(dim=1).int()
    entries[rows, 2] = (left.gather(1, chosen) - total).squeeze(1).float().view(torch.int32)
    widest = min(int(wanted.max()), left.shape[1])
    if widest:
        best = ID_MASK - (ranking_keys(left).topk(widest, dim=1).values & ID_MASK)
        _write_best(entries, rows, wanted[rows].tolist(), best, (left.gather(1, best) - total).float())
    return entries


def _write_best(
    entries: torch.Tensor, rows: torch.Tensor, wanted: list[int], best: torch.Tensor, scores: torch.Tensor
) -> None:
    for index, (row, count) in enumerate(zip(rows.tolist(), wanted, strict=True)):
        assert count <= LOGPROBS_MAX
        entries[row, 3 : 3 + count] = best[index, :count].int()
        entries[row, 3 + count : 3 + 2 * count] = scores[index, :count].view(torch.int32)
