"""What slots ask to be changed of their logits, as it lies on a device.

Owns the form: for each slot one row of `table` (a record of `TABLE`, all int32 and float32 words)
and one row of `history`, its ids by position. What the numbers mean is told in `sampling`; which
slots ask for anything stands in `SlotSettings.edits`, and nothing here is read for the others.

    table    | lengths, penalties | bias ids | bias values | ends of bad words | their ids | allowed |
    history  | prompt ... | reply so far | position drawn next ...

Invariant: `counts` is all zero between two calls of `sampling.adjust`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np
import torch

from tokenspeed_kernels.spec import KernelError

# What one slot can hold.
BIAS_MAX = 300
ALLOWED_MAX = 1024
BAD_WORDS_MAX = 128
BAD_WORD_IDS_MAX = 2048

# Bits of `SlotSettings.edits`.
PENALISES, BIASES, ALLOWS, BANS = 1, 2, 4, 8

_BIAS_PAD = -(-BIAS_MAX // 8) * 8  # rows stay 16-byte aligned

TABLE = np.dtype(
    [
        ("prompt_tokens", np.int32),
        ("repetition", np.float32),
        ("frequency", np.float32),
        ("presence", np.float32),
        ("bias_count", np.int32),
        ("allowed_count", np.int32),
        ("bad_words", np.int32),
        ("bad_word_longest", np.int32),
        ("bias_ids", np.int32, (_BIAS_PAD,)),
        ("bias_values", np.float32, (_BIAS_PAD,)),
        ("bad_word_ends", np.int32, (BAD_WORDS_MAX,)),
        ("bad_word_ids", np.int32, (BAD_WORD_IDS_MAX,)),
        ("allowed", np.int32, (ALLOWED_MAX,)),
    ]
)
"""One row of the table; of each array the first ones count."""
TABLE_WORDS = TABLE.itemsize // 4


def table_word(name: str) -> int:
    """Return the word of a table row at which the field `name` starts."""
    fields = TABLE.fields
    assert fields is not None
    return fields[name][1] // 4


class EditOpening(Protocol):
    """What a request asks for; arrays are int32 bytes, `bias_values` float32 bytes."""

    @property
    def slot(self) -> int: ...
    @property
    def prompt_tokens(self) -> int: ...
    @property
    def presence_penalty(self) -> float: ...
    @property
    def frequency_penalty(self) -> float: ...
    @property
    def repetition_penalty(self) -> float: ...
    @property
    def bias_ids(self) -> bytes: ...
    @property
    def bias_values(self) -> bytes: ...
    @property
    def allowed(self) -> bytes: ...
    @property
    def bad_word_ids(self) -> bytes: ...
    @property
    def bad_word_ends(self) -> bytes: ...
    @property
    def history_first(self) -> int: ...
    @property
    def history(self) -> bytes: ...


def edits_of(opening: EditOpening) -> int:
    """Return the bits of what `opening` asks for, 0 for nothing."""
    neutral = (opening.presence_penalty, opening.frequency_penalty, opening.repetition_penalty) == (0.0, 0.0, 1.0)
    asked = ((not neutral, PENALISES), (opening.bias_ids, BIASES), (opening.allowed, ALLOWS))
    return sum(bit for wanted, bit in (*asked, (opening.bad_word_ends, BANS)) if wanted)


@dataclass(frozen=True, slots=True)
class SlotEdits:
    """The edits of every slot on one device; slot 0 is padding and asks for none.

    `table` is int32 [slots, TABLE_WORDS], `history` int32 [slots, positions]. `counts`, int32
    [rows, vocab], is where a device counts ids; the torch form needs none of it.
    """

    table: torch.Tensor
    history: torch.Tensor
    counts: torch.Tensor

    @classmethod
    def allocate(cls, slots: int, positions: int, device: torch.device | str, rows: int = 0, vocab: int = 0) -> Self:
        """Reserve everything at once; `rows` are those of the largest call on a device."""
        shapes = ((slots, TABLE_WORDS), (slots, positions), (rows, vocab))
        if torch.device(device).type == "cpu":
            # Handed out on first touch: what no slot asks for takes no memory.
            return cls(*(torch.from_numpy(np.zeros(shape, np.int32)) for shape in shapes))
        return cls(*(torch.zeros(shape, dtype=torch.int32, device=device) for shape in shapes))

    def open(self, opening: EditOpening) -> None:
        """Write what `opening` asks for into its slot, behind what is on the current stream.

        The host does not wait: what is copied lies in page-locked memory that torch keeps until the
        device has read it. Raises `KernelError` for more than a slot holds.
        """
        if edits_of(opening):
            record = _record(opening)
            self._send(self.table[opening.slot], record.view(np.int32))
        if opening.history:
            ids = np.frombuffer(opening.history, np.int32)
            first = opening.history_first
            if first + len(ids) > self.history.shape[1]:
                raise KernelError(
                    f"slot {opening.slot} has ids up to position {first + len(ids)}, "
                    f"a history holds {self.history.shape[1]}."
                )
            self._send(self.history[opening.slot, first : first + len(ids)], ids)

    def _send(self, target: torch.Tensor, words: np.typing.NDArray[np.int32]) -> None:
        pinned = torch.empty(len(words), dtype=torch.int32, pin_memory=target.device.type != "cpu")
        pinned.numpy()[:] = words
        target.copy_(pinned, non_blocking=True)


def _record(opening: EditOpening) -> np.typing.NDArray[np.void]:
    record = np.zeros(1, TABLE)
    record["prompt_tokens"] = opening.prompt_tokens
    for name in ("repetition", "frequency", "presence"):
        record[name] = getattr(opening, f"{name}_penalty")
    record["bias_count"] = _fill(record, "bias_ids", opening.bias_ids, BIAS_MAX)
    _fill(record, "bias_values", opening.bias_values, BIAS_MAX)
    record["allowed_count"] = _fill(record, "allowed", opening.allowed, ALLOWED_MAX)
    record["bad_words"] = count = _fill(record, "bad_word_ends", opening.bad_word_ends, BAD_WORDS_MAX)
    _fill(record, "bad_word_ids", opening.bad_word_ids, BAD_WORD_IDS_MAX)
    record["bad_word_longest"] = np.diff(record["bad_word_ends"][0, :count], prepend=0).max(initial=0)
    return record


def _fill(record: np.typing.NDArray[np.void], name: str, data: bytes, most: int) -> int:
    """Write the words of `data` into the array `name` and return how many there are."""
    array = record[name][0]
    words = np.frombuffer(data, array.dtype)
    if len(words) > most:
        raise KernelError(f"{name} has {len(words)} entries, a slot holds {most}.")
    array[: len(words)] = words
    return len(words)
