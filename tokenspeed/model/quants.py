"""Weights as whole numbers: what a checkpoint's blocks hold, and how plain numbers become such.

Owns the reading of GGUF's block formats and the rounding of rows. In blocks of 32 inputs a weight is
q * scale + low, which is what the products with packed weights take (`tokenspeed_kernels.gemm`). It
does not know models or files.
Formats: the block structs of ggml (ggml-common.h) and their reference dequantisation.

Invariant: for the formats in `FORMS` q, scale and low are those of the blocks; only the products of
two scales in K-blocks are rounded, to float16. All other numbers are rounded to 8 bits.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from gguf import quants
from tokenspeed_kernels.gemm.packed_weight import BLOCK, PackedWeight, pack, packed_bytes

Bytes = np.typing.NDArray[np.uint8]

LEVELS = 127.0
SCALE_MIN = 2.0**-24  # the smallest float16
ROWS_AT_ONCE = 4096


@dataclass(frozen=True, slots=True)
class Form:
    """How whole numbers are kept: `bits` 4 (0 to 15) or 8 (-128 to 127), and whether blocks have a low."""

    bits: int
    has_low: bool

    def bytes(self, outputs: int, inputs: int) -> int:
        """Return the memory of a weight [outputs, inputs]."""
        return packed_bytes(outputs, inputs, self.bits, self.has_low)


@dataclass(frozen=True, slots=True)
class Quants:
    """Rows of a weight: `q` int8 [rows, inputs], `scale` and `low` float [rows, inputs / 32]."""

    q: torch.Tensor
    scale: torch.Tensor
    low: torch.Tensor | None


ROUNDED = Form(8, has_low=False)
FORMS = {
    "Q4_0": Form(4, has_low=True),
    "Q4_1": Form(4, has_low=True),
    "Q5_0": Form(8, has_low=False),
    "Q5_1": Form(8, has_low=True),
    "Q8_0": Form(8, has_low=False),
    "Q4_K": Form(4, has_low=True),
    "Q5_K": Form(8, has_low=True),
}


def common_form(forms: Iterable[Form]) -> Form:
    """Return the form that holds weights of all `forms`, one or more."""
    forms = list(forms)
    return Form(max(form.bits for form in forms), any(form.has_low for form in forms))


def round_rows(rows: torch.Tensor) -> Quants:
    """Return float `rows` [rows, inputs] in the form `ROUNDED`: of a block, the largest number becomes 127."""
    blocks = rows.float().view(len(rows), -1, BLOCK)
    scale = (blocks.abs().amax(dim=2) / LEVELS).half().float()
    q = (blocks / scale.clamp_min(SCALE_MIN).unsqueeze(2)).round_().clamp_(-LEVELS, LEVELS)
    return Quants(q.to(torch.int8).view(rows.shape), scale, None)


def read_blocks(packed: Bytes, kind: str, rows: int) -> Quants:
    """Return `rows` rows of whole blocks of the format `kind`, one of `FORMS`."""
    if kind in ("Q4_K", "Q5_K"):
        q, scale, low = _k_blocks(packed.reshape(-1, 144 if kind == "Q4_K" else 176))
    else:
        q, scale, low = _READERS[kind](packed.reshape(-1, _BYTES[kind]))
    shaped = [torch.from_numpy(np.ascontiguousarray(part)).view(rows, -1) for part in (q.view(np.int8), scale)]
    return Quants(shaped[0], shaped[1], None if low is None else torch.from_numpy(low).view(rows, -1))


def pack_quants(parts: list[Quants], form: Form) -> PackedWeight:
    """Return the weight whose outputs are the rows of `parts`, one after the other, in `form`."""
    q, scale = (torch.cat([getattr(part, name) for part in parts]) for name in ("q", "scale"))
    lows = [part.low if part.low is not None else torch.zeros_like(part.scale) for part in parts]
    low = torch.cat([low.float() for low in lows]) if form.has_low else None
    pieces = [
        pack(q[at], scale[at].float(), None if low is None else low[at], form.bits)
        for at in (slice(first, first + ROWS_AT_ONCE) for first in range(0, len(q), ROWS_AT_ONCE))
    ]
    data = pieces[0].data if len(pieces) == 1 else torch.cat([piece.data for piece in pieces])
    return PackedWeight(data, len(q), q.shape[1], form.bits, form.has_low)


_Numbers = np.typing.NDArray[np.generic]
_Block = tuple[Bytes, _Numbers, _Numbers | None]
_BYTES = {"Q4_0": 18, "Q4_1": 20, "Q5_0": 22, "Q5_1": 24, "Q8_0": 34}


def _halves(blocks: Bytes, first: int) -> np.typing.NDArray[np.float32]:
    return np.ascontiguousarray(blocks[:, first : first + 2]).view(np.float16).astype(np.float32)[:, 0]


def _nibbles(blocks: Bytes) -> Bytes:
    """The low halves of some bytes, then their high halves."""
    return np.concatenate((blocks & 15, blocks >> 4), axis=1)


def _fifth_bits(blocks: Bytes) -> Bytes:
    """Bit i of four bytes as 16 or 0 in place i."""
    return np.left_shift(np.unpackbits(blocks, axis=1, bitorder="little"), 4, dtype=np.uint8)


def _q4_0(blocks: Bytes) -> _Block:
    scale = _halves(blocks, 0)
    return _nibbles(blocks[:, 2:]), scale, -8 * scale


def _q4_1(blocks: Bytes) -> _Block:
    return _nibbles(blocks[:, 4:]), _halves(blocks, 0), _halves(blocks, 2)


def _q5_0(blocks: Bytes) -> _Block:
    return (_nibbles(blocks[:, 6:]) | _fifth_bits(blocks[:, 2:6])) - 16, _halves(blocks, 0), None


def _q5_1(blocks: Bytes) -> _Block:
    return _nibbles(blocks[:, 8:]) | _fifth_bits(blocks[:, 4:8]), _halves(blocks, 0), _halves(blocks, 2)


def _q8_0(blocks: Bytes) -> _Block:
    return np.ascontiguousarray(blocks[:, 2:]), _halves(blocks, 0), None


_READERS = {"Q4_0": _q4_0, "Q4_1": _q4_1, "Q5_0": _q5_0, "Q5_1": _q5_1, "Q8_0": _q8_0}


def _k_blocks(blocks: Bytes) -> _Block:
    """Q4_K, and Q5_K, which has the fifth bits of all eight blocks of 32 in 32 bytes in front."""
    scales, lows = quants.Q4_K.get_scale_min(blocks[:, 4:16])
    fifths, fours = blocks[:, 16:-128], blocks[:, -128:].reshape(-1, 4, 1, 32)
    q = np.concatenate((fours & 15, fours >> 4), axis=2).reshape(-1, 8, 32)
    if fifths.shape[1]:
        q |= ((fifths[:, None] >> np.arange(8, dtype=np.uint8)[:, None]) & 1) << 4
    scale = _halves(blocks, 0)[:, None] * scales.reshape(-1, 8)
    low = -_halves(blocks, 2)[:, None] * lows.reshape(-1, 8)
    return q, scale, low
