"""Random weights for speed runs: a model of any size from its config.json alone.

Owns the numbers. Each depends on the name of its tensor and its place in it alone, by integer
arithmetic, so that every cut among ranks, every order of reading and every device gives the same
bits. It does not know how a model computes beyond what the names of its tensors mean.

The scales keep the residual stream and the logits where a trained model has them: weights of zero or
of one value would let kernels, samplers and routers take paths that no real model takes.

Invariant: the same name and rows give the same numbers, in this process and in any other.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from pathlib import Path

import torch

from tokenspeed.model.quants import ROUNDED, Form, Quants, round_rows
from tokenspeed.model.shape import ModelShape

LOGITS_STD = 3.0
BIAS_STD = 0.1

# The finaliser of splitmix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators",
# 2014), a bijection of 64-bit integers; (shift, multiplier) in turn, the multipliers as signed.
ROUNDS = ((30, 0xBF58476D1CE4E5B9 - (1 << 64)), (27, 0x94D049BB133111EB - (1 << 64)), (31, 1))
BYTES = 8
# Of the sum of eight independent bytes, each uniform over -128 ... 127.
SUM_MEAN = -BYTES / 2
SUM_STD = math.sqrt(BYTES * (256**2 - 1) / 12)


class DummyTensors:
    """A checkpoint of random numbers with the tensors `shapes`. `read` returns float32 on `device`."""

    def __init__(self, path: Path, shape: ModelShape, shapes: Mapping[str, tuple[int, ...]], device: str) -> None:
        """`path` names it in messages; `shape` gives the depth and whether the head is the embedding."""
        self.path = path
        self.shapes = shapes
        self._device = device
        self._layers = shape.layers
        self._tied = shape.tied

    def spelled(self, name: str) -> str:
        """Return `name`: these are its own names."""
        return name

    def row_step(self, name: str) -> int:
        """Return 1: any rows can be read."""
        return 1

    def read(self, name: str, first: int, last: int) -> torch.Tensor:
        """Return rows [first, last) of the tensor `name`."""
        _, *rest = self.shapes[name]
        if not rest and not name.endswith(".bias"):
            return torch.ones(last - first, device=self._device)  # the weights of a norm
        columns = math.prod(rest)
        places = torch.arange(first * columns, last * columns, dtype=torch.int64, device=self._device)
        return _normal(places, _key(name)).mul_(self._std(name, columns)).view(last - first, *rest)

    def form(self, name: str) -> Form:
        """Return the form of rounded numbers."""
        return ROUNDED

    def quants(self, name: str, first: int, last: int) -> Quants:
        """Return rows [first, last), rounded."""
        return round_rows(self.read(name, first, last))

    def _std(self, name: str, inputs: int) -> float:
        """Return the standard deviation that keeps outputs near 1, or where a trained model has them.

        Outputs that are added to the residual stream are smaller by sqrt(2 * layers), so that all of
        them together weigh as much as the embedding does (Radford et al., GPT-2, 2019).
        """
        if name.endswith(".bias"):
            return BIAS_STD
        if "lm_head" in name or ("embed_tokens" in name and self._tied):
            return LOGITS_STD / math.sqrt(inputs)
        if "embed_tokens" in name:
            return 1.0
        added = name.endswith(("o_proj.weight", "down_proj.weight"))
        return 1.0 / math.sqrt(inputs * (2 * self._layers if added else 1))


def _key(name: str) -> int:
    """Return 32 bits that differ from tensor to tensor."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=4).digest())


def _normal(places: torch.Tensor, key: int) -> torch.Tensor:
    """Return float32 of mean 0 and deviation 1, nearly normal, one for each of `places` (int64, used up).

    The key stands above the place, so that no two tensors with different keys share a number's origin.
    """
    mixed = places.bitwise_xor_((key - (1 << 31)) << 32)
    for shift, multiplier in ROUNDS:
        # >> keeps the sign: the bits that it brings in are cleared.
        mixed.bitwise_xor_((mixed >> shift).bitwise_and_((1 << (64 - shift)) - 1)).mul_(multiplier)
    sums = mixed.view(torch.int8).view(-1, BYTES).sum(1, dtype=torch.int32)
    return sums.float().sub_(SUM_MEAN).mul_(1 / SUM_STD)
