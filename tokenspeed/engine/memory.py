"""How much memory there is for a model, asked without touching the device.

Owns the questions: the kernel for main memory and the limit of the control group, NVIDIA's
management library for a GPU. No CUDA context is made, which would hold memory in a process that
computes nothing. What a model needs is not known here.

Invariant: nothing is reserved, and what cannot be asked counts as no limit.
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
from collections.abc import Iterator
from pathlib import Path

from tokenspeed.config import first_gpu

MEMINFO = Path("/proc/meminfo")
CGROUP = Path("/sys/fs/cgroup")
LIBRARY = "libnvidia-ml.so.1"
UNLIMITED = sys.maxsize


class _NvmlMemory(ctypes.Structure):
    """`nvmlMemory_t`: bytes."""

    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


def bytes_allowed(device: str, gpu_share: float) -> int:
    """Return the bytes that may be taken now: of main memory on "cpu", else of the first GPU's share `gpu_share`."""
    if device == "cpu":
        return min(main_memory_limits(), default=UNLIMITED)
    found = gpu_memory(first_gpu())
    return UNLIMITED if found is None else found[0] - int(found[1] * (1 - gpu_share))


def main_memory_limits(meminfo: Path = MEMINFO, cgroup: Path = CGROUP) -> Iterator[int]:
    """Yield what the machine has left, and what this process's control group has left."""
    with contextlib.suppress(OSError):
        lines = meminfo.read_text().splitlines()
        yield from (int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))
    with contextlib.suppress(OSError, ValueError):  # no such group, or "max"
        yield int((cgroup / "memory.max").read_text()) - int((cgroup / "memory.current").read_text())


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
