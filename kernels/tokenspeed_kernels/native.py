"""The border to the native kernels of the CPU.

Owns the version check, the threads, and the way from a status to an exception. What the functions
compute is said in native/include/tokenspeed_kernels.h; their callers lie in the families.

Invariant: a negative status never gets lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from tokenspeed_kernels._native import ffi, lib
from tokenspeed_kernels.spec import KernelError

if TYPE_CHECKING:
    from tokenspeed_kernels._native import CData

__all__ = [
    "BLOCK",
    "ISA",
    "THREADS_MAX",
    "TILE",
    "KernelError",
    "check",
    "ffi",
    "floats",
    "int64s",
    "lib",
    "set_threads",
]

ABI_VERSION = 1
if lib.tsk_abi_version() != ABI_VERSION:
    raise KernelError(
        f"the native kernels have ABI version {lib.tsk_abi_version()}, this package needs {ABI_VERSION}: "
        "build them again with `python setup.py build_ext --inplace`, or reinstall the package"
    )

BLOCK: int = lib.TSK_BLOCK
TILE: int = lib.TSK_TILE
ISA: int = lib.tsk_best_isa()
THREADS_MAX = 256


def set_threads(threads: int) -> None:
    """Let products use `threads` threads, 1 to 256, the caller's included; not while one runs."""
    check(lib.tsk_set_threads(threads))


def check(status: int) -> None:
    """Raise `MemoryError` or `KernelError` for a negative `status`."""
    if status == lib.TSK_ERR_MEMORY:
        raise MemoryError("there is no memory for the rounded rows of a product")
    if status < 0:
        raise KernelError(f"a native kernel refused its arguments (status {status})")


def floats(tensor: torch.Tensor) -> CData:
    """Return the address of a float32 tensor's first number."""
    return ffi.cast("float *", tensor.data_ptr())


def int64s(tensor: torch.Tensor) -> CData:
    """Return the address of an int64 tensor's first number."""
    return ffi.cast("int64_t *", tensor.data_ptr())
