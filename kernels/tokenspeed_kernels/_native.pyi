"""Types of the module that native/cffi_build.py builds from tokenspeed_kernels.h."""

from typing import Any

class CData:
    """A C value; fields and items are reached as in C."""

    def __getattr__(self, name: str) -> Any: ...
    def __setattr__(self, name: str, value: Any) -> None: ...

class FFI:
    def new(self, cdecl: str, init: Any = ...) -> CData: ...
    def cast(self, cdecl: str, source: Any) -> CData: ...

class Lib:
    TSK_ABI_VERSION: int
    TSK_BLOCK: int
    TSK_TILE: int
    TSK_SCALAR: int
    TSK_AVX2: int
    TSK_AVX512_VNNI: int
    TSK_ERR_ARGUMENT: int
    TSK_ERR_MEMORY: int
    def tsk_abi_version(self) -> int: ...
    def tsk_best_isa(self) -> int: ...
    def tsk_set_threads(self, threads: int) -> int: ...
    def tsk_matmul(
        self, weight: CData, x: CData, x_stride: int, rows: int, y: CData, y_stride: int, isa: int
    ) -> int: ...
    def tsk_lookup(self, weight: CData, ids: CData, count: int, y: CData) -> int: ...

ffi: FFI
lib: Lib
