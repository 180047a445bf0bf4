"""The small families against their formulas in float64."""

from __future__ import annotations

import math

import pytest
import torch
from tokenspeed_kernels import selector
from tokenspeed_kernels.activation import silu_mul
from tokenspeed_kernels.embedding import lookup
from tokenspeed_kernels.gemm import linear
from tokenspeed_kernels.norm import add_rms_norm, rms_norm
from tokenspeed_kernels.rope import rope_store, rotation

KERNELS = selector("cpu")
F32 = torch.float32


def _random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def _close(seen: torch.Tensor, wanted: torch.Tensor) -> None:
    torch.testing.assert_close(seen.double(), wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("tokens", [1, 5])
def test_linear(tokens: int) -> None:
    """The product."""
    x, weight = _random(tokens, 12), _random(12, 7, seed=1)
    _close(linear(KERNELS, F32)(x, weight), x.double() @ weight.double())


def test_rms_norm() -> None:
    """The formula, with and without a residual; the residual stream comes back."""
    x, residual, weight = _random(3, 10), _random(3, 10, seed=1), _random(10, seed=2)

    def formula(value: torch.Tensor) -> torch.Tensor:
        value = value.double()
        return value / (value.square().mean(-1, keepdim=True) + 1e-2).sqrt() * weight.double()

    _close(rms_norm(KERNELS, F32)(x, weight, 1e-2), formula(x))
    total = x + residual
    normed, stream = add_rms_norm(KERNELS, F32)(x.clone(), residual, weight, 1e-2)
    _close(normed, formula(total))
    assert torch.equal(stream, total)


def test_silu_mul() -> None:
    """silu(gate) * up."""
    both = _random(4, 14)
    gate, up = both.double().chunk(2, dim=1)
    _close(silu_mul(KERNELS, F32)(both.clone()), gate / (1 + (-gate).exp()) * up)


def test_lookup_of_slices_sums_to_the_whole() -> None:
    """Each id is in one slice and zero in the others."""
    table, ids = _random(3, 10), torch.tensor([9, 0, 4, 5, 4])
    whole = lookup(KERNELS, F32, sliced=False)(ids, table, 0)
    assert torch.equal(whole, table.t()[ids])
    part = lookup(KERNELS, F32, sliced=True)
    assert torch.equal(part(ids, table[:, :5], 0) + part(ids, table[:, 5:], 5), whole)


def test_rope_store() -> None:
    """Pairs (i, i + half) turn by position * frequency; keys and values land in their places."""
    heads, kv_heads, dim = 3, 2, 6
    qkv = _random(4, heads + 2 * kv_heads, dim)
    positions, places = torch.tensor([0, 1, 7, 30]), torch.tensor([5, 9, 2, 11])
    frequency = torch.tensor([1.0, 0.3, 0.01])
    keys, values = torch.zeros(3, 4, kv_heads, dim), torch.zeros(3, 4, kv_heads, dim)
    queries = rope_store(KERNELS, F32, dim)(qkv.clone(), *rotation(positions, frequency), keys, values, places)

    def turned(vector: torch.Tensor, position: int) -> torch.Tensor:
        out = vector.double().clone()
        for pair, pace in enumerate(frequency.tolist()):
            angle, a, b = position * pace, out[..., pair].clone(), out[..., pair + 3].clone()
            out[..., pair] = a * math.cos(angle) - b * math.sin(angle)
            out[..., pair + 3] = b * math.cos(angle) + a * math.sin(angle)
        return out

    for token, (position, place) in enumerate(zip(positions.tolist(), places.tolist(), strict=True)):
        _close(queries[token], turned(qkv[token, :heads], position))
        _close(keys.view(-1, kv_heads, dim)[place], turned(qkv[token, heads : heads + kv_heads], position))
        assert torch.equal(values.view(-1, kv_heads, dim)[place], qkv[token, heads + kv_heads :])
    untouched = [place for place in range(12) if place not in places.tolist()]
    assert not keys.view(12, -1)[untouched].any()
    assert not values.view(12, -1)[untouched].any()
