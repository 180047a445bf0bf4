"""Rotation and store on the GPU against complex numbers in float64."""

from __future__ import annotations

import pytest
import torch
from tokenspeed_kernels import selector
from tokenspeed_kernels.rope import rope_store, rotation

from tests.kernels.numerics import CAPABILITY, ERROR_MAX, GPU_DTYPES, draw, error

KERNELS = selector("cuda", capability=CAPABILITY)
PAGES, PAGE_TOKENS = 6, 16

pytestmark = pytest.mark.usefixtures("poisoned")


def _turned(vectors: torch.Tensor, positions: torch.Tensor, frequency: torch.Tensor) -> torch.Tensor:
    """Turn pair (i, i + half) of [tokens, heads, head_dim] by position * frequency."""
    half = vectors.shape[-1] // 2
    pairs = torch.complex(vectors[..., :half].double(), vectors[..., half:].double())
    angles = positions.double()[:, None, None] * frequency.double()
    pairs = pairs * torch.polar(torch.ones_like(angles), angles)
    return torch.cat((pairs.real, pairs.imag), dim=-1)


@pytest.mark.parametrize("dtype", GPU_DTYPES)
@pytest.mark.parametrize("places_dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize(
    ("tokens", "heads", "kv_heads", "head_dim"), [(1, 32, 8, 128), (9, 9, 3, 64), (4, 5, 1, 80), (3, 2, 2, 6)]
)
def test_rope_store(
    tokens: int, heads: int, kv_heads: int, head_dim: int, places_dtype: torch.dtype, dtype: torch.dtype, device: str
) -> None:
    """Queries come back turned, keys turned and values as they are lie in their places, nothing else is touched.

    Keys and values of a page lie side by side here, and rows of the projections apart.
    """
    width = (heads + 2 * kv_heads) * head_dim
    qkv = draw(tokens, width + 16, dtype=dtype, device=device)[:, :width].view(tokens, -1, head_dim)
    # Small ones: a float32 angle is as exact as its size allows, and the reference is exact.
    positions = torch.randint(0, 30, (tokens,), device=device)
    frequency = 10000.0 ** -torch.arange(0, 1, 2 / head_dim, device=device)[: head_dim // 2]
    places = torch.randperm(PAGES * PAGE_TOKENS, device=device)[:tokens]
    pages = draw(PAGES, 2, PAGE_TOKENS, kv_heads, head_dim, dtype=dtype, device=device)
    before = pages.clone()
    kernel = rope_store(KERNELS, dtype, head_dim)
    queries = kernel(qkv, *rotation(positions, frequency), pages[:, 0], pages[:, 1], places.to(places_dtype))

    assert error(queries, _turned(qkv[:, :heads], positions, frequency)) < ERROR_MAX[dtype]
    page, offset = places // PAGE_TOKENS, places % PAGE_TOKENS
    keys = pages[page, 0, offset]
    assert error(keys, _turned(qkv[:, heads : heads + kv_heads], positions, frequency)) < ERROR_MAX[dtype]
    assert torch.equal(pages[page, 1, offset], qkv[:, heads + kv_heads :])
    pages[page, :, offset] = before[page, :, offset]
    assert torch.equal(pages, before)


def test_padding_shares_place_0(device: str) -> None:
    """Rows of a graph's padding all write to place 0, and harm no other place."""
    qkv, pages = draw(5, 3, 64, device=device), torch.zeros(2, 2, PAGE_TOKENS, 1, 64, device=device)
    places = torch.tensor([0, 20, 0, 0, 0], device=device)
    turn = rotation(torch.zeros(5, device=device), torch.ones(32, device=device))
    queries = rope_store(KERNELS, qkv.dtype, 64)(qkv, *turn, pages[0], pages[1], places)
    assert torch.equal(queries[:, 0], qkv[:, 0])
    assert torch.equal(pages[:, 1, 4, 0], qkv[1, 1:])
    assert any(torch.equal(pages[:, 0, 0, 0], qkv[token, 1:]) for token in (0, 2, 3, 4))
    pages[:, 1, 4] = pages[:, 0, 0] = 0.0
    assert not pages.any()
