"""Where the kernels run: on the GPU if there is one, else on the CPU, where Triton interprets them.

Small matrices: a second thread would only wait for the first.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
import torch

torch.set_num_threads(1)
HAS_GPU = torch.cuda.is_available()
if not HAS_GPU:
    # Read when a kernel's module is imported, so before any test file is.
    os.environ["TRITON_INTERPRET"] = "1"
    from tests.kernels.interpreter import mend

    mend()


@pytest.fixture(scope="session")
def device() -> str:
    """Return the device whose tensors the GPU's kernels take here."""
    return "cuda" if HAS_GPU else "cpu"


@pytest.fixture
def poisoned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fill what kernels allocate with NaN, so that an element nobody writes is seen."""

    def poison(allocate: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        def allocated(*arguments: Any, **keywords: Any) -> torch.Tensor:
            tensor = allocate(*arguments, **keywords)
            return tensor.fill_(float("nan")) if tensor.is_floating_point() else tensor

        return allocated

    for owner, name in ((torch, "empty"), (torch, "empty_like"), (torch.Tensor, "new_empty")):
        monkeypatch.setattr(owner, name, poison(getattr(owner, name)))
