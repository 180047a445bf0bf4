"""Devices, dtypes and variants that the kernels of all families share."""

from __future__ import annotations

from dataclasses import replace

import torch

from tokenspeed_kernels.spec import Capability, KernelSpec

CPU = (Capability("cpu"),)
# What plain Triton and torch kernels need: bf16 matrix units.
GPU = (Capability("cuda", (8, 0)),)
HOPPER = (Capability("cuda", (9, 0), (9, 0)),)
NATIVE_DTYPES = frozenset({torch.float32})
REFERENCE_DTYPES = frozenset({torch.float32, torch.float64})
GPU_DTYPES = frozenset({torch.float32, torch.bfloat16, torch.float16})
HALF_DTYPES = frozenset({torch.bfloat16, torch.float16})


def with_early_start(spec: KernelSpec) -> tuple[KernelSpec, KernelSpec]:
    """Return `spec` and its variant that starts before the kernel in front has ended.

    The variant's entry has the same name with `_pdl` behind it (programmatic dependent launch, from
    Hopper on); where it runs, it is preferred.
    """
    variant = replace(
        spec,
        name=f"{spec.name}_pdl",
        solution=f"{spec.solution}_pdl",
        entry=f"{spec.entry}_pdl",
        capability=HOPPER,
        priority=spec.priority + 10,
    )
    return spec, variant
