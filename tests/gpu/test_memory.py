"""What the management library tells of the GPU is what CUDA tells."""

from __future__ import annotations

import pytest
import torch

from tokenspeed.config import first_gpu
from tokenspeed.engine.memory import gpu_memory


@pytest.mark.gpu
def test_memory_without_a_context() -> None:
    found = gpu_memory(first_gpu())
    assert found is not None
    free, total = torch.cuda.mem_get_info()
    assert abs(found[1] - total) < total / 50
    assert free <= found[0] + total / 50
