"""Angles of the rotary embedding.

Owns the inverse frequencies of a model; the tables of all positions are the kernels' business.
Formulas: Su et al., "RoFormer" (2021). linear: Chen et al., "Extending Context Window of Large
Language Models via Positional Interpolation" (2023). dynamic: theta grows with the length ("NTK-aware"
scaling, as in Peng et al., appendix B). llama3, as published with Llama 3.1: wavelengths above
original_max_position / low_freq_factor are slowed by `factor`, those below original_max_position /
high_freq_factor are kept, between them the two are blended. yarn: Peng et al., "YaRN" (2023), the
blend runs along the dimensions that turn beta_fast to beta_slow times in the original context.
"""

from __future__ import annotations

import math

import torch

from tokenspeed.model.shape import RopeShape


def inverse_frequency(rope: RopeShape, head_dim: int, max_position: int) -> torch.Tensor:
    """Return float32 [head_dim / 2]: radians per position of each pair of dimensions.

    `max_position` matters to dynamic rope alone. Keys stay in the cache as they were turned, so the
    frequencies are those of the longest sequence from the first token on.
    """
    exponent = torch.arange(0, head_dim, 2, dtype=torch.int64).float() / head_dim
    theta = _dynamic_theta(rope, head_dim, max_position) if rope.kind == "dynamic" else rope.theta
    plain = 1.0 / (theta**exponent)
    if rope.kind == "linear":
        return plain / rope.factor
    if rope.kind == "factors":
        return plain / torch.tensor(rope.factors)
    if rope.kind == "llama3":
        return _llama3(plain, rope)
    if rope.kind == "yarn":
        return _yarn(plain, rope, head_dim)
    return plain


def _dynamic_theta(rope: RopeShape, head_dim: int, max_position: int) -> float:
    times = max(max_position / rope.original_max_position, 1.0)
    grown: float = (rope.factor * times - (rope.factor - 1)) ** (head_dim / (head_dim - 2))
    return rope.theta * grown


def _llama3(plain: torch.Tensor, rope: RopeShape) -> torch.Tensor:
    wavelength = 2 * math.pi / plain
    turns = rope.original_max_position / wavelength
    kept = (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor)
    blended = (1 - kept) * plain / rope.factor + kept * plain
    slow = wavelength > rope.original_max_position / rope.low_freq_factor
    fast = wavelength < rope.original_max_position / rope.high_freq_factor
    return torch.where(slow, plain / rope.factor, torch.where(fast, plain, blended))


def _yarn(plain: torch.Tensor, rope: RopeShape, head_dim: int) -> torch.Tensor:
    """Keep the fast dimensions, slow the others by `factor`, blend along a ramp between them."""
    first, last = (_turning_dimension(rope, head_dim, turns) for turns in (rope.beta_fast, rope.beta_slow))
    if rope.truncate:
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, head_dim - 1)
    width = last - first or 0.001  # no division by zero
    slowed = ((torch.arange(head_dim // 2).float() - first) / width).clamp(0, 1)
    return plain / rope.factor * slowed + plain * (1 - slowed)


def _turning_dimension(rope: RopeShape, head_dim: int, turns: float) -> float:
    """Return the pair of dimensions, not whole, that turns `turns` times in the original context."""
    wavelength = rope.original_max_position / (turns * 2 * math.pi)
    return head_dim * math.log(wavelength) / (2 * math.log(rope.theta))
