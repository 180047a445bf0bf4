"""RMS normalisation on the GPU against its formula in float64."""

from __future__ import annotations

import pytest
import torch
from tokenspeed_kernels import selector
from tokenspeed_kernels.norm import add_rms_norm, rms_norm

from tests.kernels.numerics import CAPABILITY, ERROR_MAX, GPU_DTYPES, draw, error

KERNELS = selector("cuda", capability=CAPABILITY)
EPS = 1e-2
SHAPES = ((1, 4096), (3, 576), (40, 100), (7, 1), (2, 16384))

pytestmark = pytest.mark.usefixtures("poisoned")


def _formula(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    x = x.double()
    return x / (x.square().mean(-1, keepdim=True) + EPS).sqrt() * weight.double()


@pytest.mark.parametrize("dtype", GPU_DTYPES)
@pytest.mark.parametrize(("rows", "hidden"), SHAPES)
def test_rms_norm(rows: int, hidden: int, dtype: torch.dtype, device: str) -> None:
    """The formula; rows may lie apart, and what is normalised stays as it was."""
    whole = draw(rows, hidden + 5, dtype=dtype, device=device)
    x, weight = whole[:, :hidden], draw(hidden, dtype=dtype, device=device)
    before = whole.clone()
    assert error(rms_norm(KERNELS, dtype)(x, weight, EPS), _formula(x, weight)) < ERROR_MAX[dtype]
    assert torch.equal(whole, before)


@pytest.mark.parametrize("dtype", GPU_DTYPES)
@pytest.mark.parametrize(("rows", "hidden"), SHAPES)
def test_add_rms_norm(rows: int, hidden: int, dtype: torch.dtype, device: str) -> None:
    """The sum is rounded, returned and what is normalised."""
    x, residual = (draw(rows, hidden, dtype=dtype, device=device) for _ in range(2))
    weight = draw(hidden, dtype=dtype, device=device)
    wanted, kept = x + residual, residual.clone()
    normed, total = add_rms_norm(KERNELS, dtype)(x, residual, weight, EPS)
    assert error(normed, _formula(total, weight)) < ERROR_MAX[dtype]
    assert torch.equal(total, wanted)
    assert torch.equal(residual, kept)


def test_no_rows(device: str) -> None:
    """Nothing to normalise is nothing to do."""
    x = draw(0, 64, device=device)
    assert rms_norm(KERNELS, x.dtype)(x, draw(64, device=device), EPS).shape == (0, 64)
