"""Devices and dtypes that the kernels of all families share."""

from __future__ import annotations

import torch

from tokenspeed_kernels.spec import Capability

CPU = (Capability("cpu"),)
# What plain Triton and torch kernels need: bf16 matrix units.
GPU = (Capability("cuda", (8, 0)),)
HOPPER = (Capability("cuda", (9, 0), (9, 0)),)
REFERENCE_DTYPES = frozenset({torch.float32, torch.float64})
GPU_DTYPES = frozenset({torch.float32, torch.bfloat16, torch.float16})
HALF_DTYPES = frozenset({torch.bfloat16, torch.float16})
