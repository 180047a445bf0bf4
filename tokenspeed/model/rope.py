"""Angles of the rotary embedding.

Owns the inverse frequencies of a model and the rotation of each position. Formulas: Su et al.,
"RoFormer" (2021); the llama3 scaling as published with Llama 3.1: wavelengths above
original_max_position / low_freq_factor are slowed by `factor`, those below original_max_position /
high_freq_factor are kept, between them the two are blended.
"""

from __future__ import annotations

import math

import torch

from tokenspeed.model.config import RopeShape


def inverse_frequency(rope: RopeShape, head_dim: int) -> torch.Tensor:
    """Return float32 [head_dim / 2]: radians per position of each pair of dimensions."""
    exponent = torch.arange(0, head_dim, 2, dtype=torch.int64).float() / head_dim
    plain = 1.0 / (rope.theta**exponent)
    if rope.kind == "linear":
        return plain / rope.factor
    if rope.kind == "factors":
        return plain / torch.tensor(rope.factors)
    if rope.kind == "llama3":
        return _llama3(plain, rope)
    return plain


def _llama3(plain: torch.Tensor, rope: RopeShape) -> torch.Tensor:
    wavelength = 2 * math.pi / plain
    turns = rope.original_max_position / wavelength
    kept = (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor)
    blended = (1 - kept) * plain / rope.factor + kept * plain
    slow = wavelength > rope.original_max_position / rope.low_freq_factor
    fast = wavelength < rope.original_max_position / rope.high_freq_factor
    return torch.where(slow, plain / rope.factor, torch.where(fast, plain, blended))
