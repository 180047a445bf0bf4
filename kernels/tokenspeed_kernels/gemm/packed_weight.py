"""Weights that stay quantised: their form in memory, and how they get into it.

A weight [outputs, inputs] is kept as whole numbers q of 4 or 8 bits, with a float16 scale and, if
need be, a float16 low for each output and block of 32 inputs: w = q * scale + low. The order in
memory is the native kernels' (native/include/tokenspeed_kernels.h); torch makes it, so that it can
be read and checked without them.

Invariant: `unpack(pack(q, scale, low, bits))` is exactly q * scale + low in float32.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

BLOCK = 32
TILE = 16
VECTOR_INPUTS = 4
RANGE = {4: (0, 15), 8: (-128, 127)}


@dataclass(frozen=True, slots=True)
class PackedWeight:
    """A weight [outputs, inputs]. `data` is uint8 [tiles, blocks, bytes of a block]."""

    data: torch.Tensor
    outputs: int
    inputs: int
    bits: int
    has_low: bool
    # What a solution derives from the weight once, such as its address in a C struct.
    derived: dict[str, object] = field(default_factory=dict, compare=False, repr=False)


def packed_bytes(outputs: int, inputs: int, bits: int, has_low: bool) -> int:
    """Return the memory of such a weight."""
    block = TILE * BLOCK * bits // 8 + 2 * TILE * (1 + has_low)
    return -(-outputs // TILE) * (inputs // BLOCK) * block


def pack(q: torch.Tensor, scale: torch.Tensor, low: torch.Tensor | None, bits: int) -> PackedWeight:
    """Return the weight q * scale + low.

    `q` is [outputs, inputs] of whole numbers, 0 to 15 for 4 `bits`, -128 to 127 for 8; inputs are a
    multiple of 32. `scale` and `low` are [outputs, inputs / 32] and are rounded to float16.
    """
    outputs, inputs = q.shape
    tiles, blocks = -(-outputs // TILE), inputs // BLOCK
    missing = (0, 0, 0, tiles * TILE - outputs)
    q = torch.nn.functional.pad(q.to(torch.int16).bitwise_and(0xFF).to(torch.uint8), missing)
    vectors = q.view(tiles, TILE, blocks, BLOCK // VECTOR_INPUTS, VECTOR_INPUTS).permute(0, 2, 3, 1, 4)
    if bits == 4:
        first, second = vectors.chunk(2, dim=2)
        vectors = first | second << 4
    parts = [vectors.reshape(tiles, blocks, -1)]
    parts += [
        torch.nn.functional.pad(part.to(torch.float16), missing)
        .view(tiles, TILE, blocks)
        .transpose(1, 2)
        .contiguous()
        .view(torch.uint8)
        for part in (scale, low)
        if part is not None
    ]
    return PackedWeight(torch.cat(parts, dim=2), outputs, inputs, bits, low is not None)


def unpack(weight: PackedWeight) -> torch.Tensor:
    """Return the numbers of `weight`, float32 [outputs, inputs]."""
    tiles, blocks, _ = weight.data.shape
    quants = TILE * BLOCK * weight.bits // 8
    vectors = weight.data[:, :, :quants].reshape(tiles, blocks, -1, TILE, VECTOR_INPUTS)
    if weight.bits == 4:
        q = torch.cat((vectors & 15, vectors >> 4), dim=2).to(torch.float32)
    else:
        q = vectors.contiguous().view(torch.int8).to(torch.float32)
    scales = weight.data[:, :, quants:].contiguous().view(torch.float16).to(torch.float32)
    scales = scales.view(tiles, blocks, -1, 1, TILE, 1)
    numbers = q * scales[:, :, 0]
    if weight.has_low:
        numbers = numbers + scales[:, :, 1]
    return numbers.permute(0, 3, 1, 2, 4).reshape(tiles * TILE, weight.inputs)[: weight.outputs]
