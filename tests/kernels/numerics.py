"""What the tests of GPU kernels share: fresh random inputs, and how far off a result is."""

from __future__ import annotations

import secrets

import torch

F16, BF16, F32 = torch.float16, torch.bfloat16, torch.float32
GPU_DTYPES = (F32, F16, BF16)
# The kernels chosen: on a Hopper GPU those that start early too, which the interpreter cannot.
CAPABILITY = torch.cuda.get_device_capability() if torch.cuda.is_available() else (8, 0)
# Rounding of inputs and results; a wrong index or a lost term is off by far more.
ERROR_MAX = {F32: 2e-6, F16: 1e-3, BF16: 8e-3}


def draw(*shape: int, dtype: torch.dtype = F32, device: str = "cpu") -> torch.Tensor:
    """Return normal random numbers, different on every call; the seed is printed."""
    seed = secrets.randbits(32)
    print(f"draw{shape} seed {seed}")
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(device, dtype)


def error(seen: torch.Tensor, wanted: torch.Tensor) -> float:
    """Return ||seen - wanted|| / ||wanted||, with `wanted` in float64; NaN stays NaN."""
    assert seen.shape == wanted.shape
    assert wanted.dtype is torch.float64
    return float((seen.double() - wanted).norm() / wanted.norm())
