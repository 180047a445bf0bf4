"""`sampling.adjust` in torch: what is right, row by row, for the CPU.

Counts are made anew from the history for each token: position is the only progress.
"""

from __future__ import annotations

import numpy as np
import torch

from tokenspeed_kernels.sampling.edits import TABLE, SlotEdits

Record = np.void
NEVER = float("-inf")


def adjust(
    logits: torch.Tensor, asked: torch.Tensor, edits: SlotEdits, slots: torch.Tensor, positions: torch.Tensor
) -> torch.Tensor:
    """Return the changed logits, float32 [rows, vocab]; see `AdjustKernel`."""
    edited = torch.empty_like(logits)
    records = edits.table.numpy().view(TABLE)[:, 0]
    for row in asked[slots.long()].nonzero().squeeze(1).tolist():
        slot, position = int(slots[row]), int(positions[row])
        edited[row] = logits[row]
        edit_row(edited[row], records[slot], edits.history[slot, :position])
    return edited


def edit_row(row: torch.Tensor, record: Record, history: torch.Tensor) -> None:
    """Change one row of logits, float32 [vocab], in place; `history` are its ids before the one drawn."""
    _penalise(row, record, history)
    ids = _ids(record, "bias_ids", int(record["bias_count"]))
    row[ids] += torch.from_numpy(record["bias_values"][: len(ids)].copy())
    if record["allowed_count"]:
        ids = _ids(record, "allowed", int(record["allowed_count"]))
        kept = row[ids]
        row.fill_(NEVER)
        row[ids] = kept
    for word in _bad_words(record):
        before = word[:-1]
        reply = history[int(record["prompt_tokens"]) :].numpy()
        if len(before) <= len(reply) and np.array_equal(reply[len(reply) - len(before) :], before):
            row[int(word[-1])] = NEVER


def _penalise(row: torch.Tensor, record: Record, history: torch.Tensor) -> None:
    repetition, frequency, presence = (float(record[name]) for name in ("repetition", "frequency", "presence"))
    if repetition != 1.0:
        seen = torch.from_numpy(np.unique(history.numpy())).long()
        x = row[seen]
        factor = torch.tensor(repetition)
        row[seen] = torch.where(x > 0, x / factor, x * factor)
    if frequency or presence:
        ids, counts = np.unique(history[int(record["prompt_tokens"]) :].numpy(), return_counts=True)
        replied, loss = torch.from_numpy(ids).long(), torch.from_numpy(counts * frequency + presence)
        # In float64 nothing rounds but the result, on any device and in any order.
        row[replied] = (row[replied].double() - loss).float()


def _bad_words(record: Record) -> list[np.typing.NDArray[np.int32]]:
    ends = record["bad_word_ends"][: int(record["bad_words"])]
    return np.split(record["bad_word_ids"], ends)[:-1] if len(ends) else []


def _ids(record: Record, name: str, count: int) -> torch.Tensor:
    return torch.from_numpy(record[name][:count].astype(np.int64))
