"""How much memory there is for a model, asked without touching the device.

Owns the choice of whom to ask: `machine` for main memory, NVIDIA's management library for a GPU. No
CUDA context is made, which would hold memory in a process that computes nothing. What a model needs
is not known here.

Invariant: nothing is reserved, and what cannot be asked counts as no limit.
"""

from __future__ import annotations

import ctypes
import sys

from tokenspeed.config import first_gpu
from tokenspeed.machine import memory_available_bytes

LIBRARY = "libnvidia-ml.so.1"
UNLIMITED = sys.maxsize


class _NvmlMemory(ctypes.Structure):
    """`nvmlMemory_t`: bytes."""

    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


def bytes_allowed(device: str, gpu_share: float) -> int:
    """Return the bytes that may be taken now: of main memory on "cpu", else of the first GPU's share `gpu_share`."""
    if device == "cpu":
        available = memory_available_bytes()
        return UNLIMITED if available is None else available
    found = gpu_memory(first_gpu())
    return UNLIMITED if found is None else found[0] - int(found[1] * (1 - gpu_share))


def gpu_memory(gpu: str, library: str = LIBRARY) -> tuple[int, int] | None:
    """Return (free, total) bytes of the GPU with the index or UUID `gpu`, None if the driver does not tell."""
    try:
        nvml = ctypes.CDLL(library)
        handle, memory = ctypes.c_void_p(), _NvmlMemory()
        if nvml.nvmlInit_v2():
            return None
        if gpu.isdigit():
            failed = nvml.nvmlDeviceGetHandleByIndex_v2(int(gpu), ctypes.byref(handle))
        else:
            failed = nvml.nvmlDeviceGetHandleByUUID(gpu.encode(), ctypes.byref(handle))
        failed = failed or nvml.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory))
        nvml.nvmlShutdown()
    except (OSError, AttributeError):
        return None
    return None if failed else (memory.free, memory.total)
