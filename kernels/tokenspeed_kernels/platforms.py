"""Devices and dtypes that the torch references of all families share."""

from __future__ import annotations

import torch

from tokenspeed_kernels.spec import Capability

CPU = (Capability("cpu"),)
REFERENCE_DTYPES = frozenset({torch.float32, torch.float64})
