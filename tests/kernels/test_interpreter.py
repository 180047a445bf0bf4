"""The mended interpreter rounds as torch does."""

from __future__ import annotations

import torch

from tests.kernels.interpreter import rounded, widened
from tests.kernels.numerics import BF16, draw


def test_bf16_rounds_to_nearest_even() -> None:
    """Random numbers, ties, the ends, and what is no number."""
    ends = [0.0, -0.0, 1e-41, 3.4e38, float("inf"), -float("inf"), float("nan"), 1.00390625, 1.01171875]
    numbers = torch.cat((draw(1000), torch.tensor(ends)))
    wanted = numbers.to(BF16)
    seen = torch.from_numpy(rounded(numbers.numpy()).view("int16")).view(BF16)
    assert torch.equal(seen.nan_to_num(7.0), wanted.nan_to_num(7.0))
    wide = torch.from_numpy(widened(wanted.view(torch.int16).numpy().view("uint16")))
    assert torch.equal(wide.nan_to_num(7.0), wanted.float().nan_to_num(7.0))
