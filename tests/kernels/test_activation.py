"""SwiGLU's fold on the GPU against its formula in float64."""

from __future__ import annotations

import pytest
import torch
from tokenspeed_kernels import selector
from tokenspeed_kernels.activation import silu_mul

from tests.kernels.numerics import CAPABILITY, ERROR_MAX, GPU_DTYPES, draw, error

KERNELS = selector("cuda", capability=CAPABILITY)

pytestmark = pytest.mark.usefixtures("poisoned")


@pytest.mark.parametrize("dtype", GPU_DTYPES)
@pytest.mark.parametrize(("rows", "width"), [(1, 14336), (40, 33), (5, 1024), (0, 8)])
def test_silu_mul(rows: int, width: int, dtype: torch.dtype, device: str) -> None:
    """silu(gate) * up, of rows that may lie apart."""
    both = draw(rows, 2 * width + 3, dtype=dtype, device=device)[:, : 2 * width]
    gate, up = both.double().chunk(2, dim=1)
    seen = silu_mul(KERNELS, dtype)(both)
    assert seen.shape == (rows, width)
    if rows:
        assert error(seen, gate / (1 + (-gate).exp()) * up) < ERROR_MAX[dtype]


@pytest.mark.filterwarnings("ignore:overflow encountered in exp:RuntimeWarning")
def test_far_ends(device: str) -> None:
    """The exponential overflows where silu is 0 and vanishes where it is the identity."""
    gate = torch.tensor([[-1000.0, -90.0, 0.0, 90.0, 1000.0]], device=device)
    seen = silu_mul(KERNELS, gate.dtype)(torch.cat((gate, torch.ones_like(gate)), dim=1))
    torch.testing.assert_close(seen, torch.nn.functional.silu(gate))
