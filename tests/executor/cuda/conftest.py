"""GPU code on the CPU: Triton's kernels interpreted, streams and events left out."""

from __future__ import annotations

import os

import torch

if not torch.cuda.is_available():
    # Read when a kernel's module is imported, so before any test file is.
    os.environ["TRITON_INTERPRET"] = "1"
    from tests.kernels.interpreter import mend

    mend()
