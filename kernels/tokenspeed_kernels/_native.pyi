"""Types of the module that native/cffi_build.py builds from tokenspeed_kernels.h."""

from typing import Any

class CData:
    """A C value; fields and items are reached as in C."""

    def __getattr__(self, name: str) -> Any: ...
    def __setattr__(self, name: str, value: Any) -> None: ...

class FFI:
    NULL: CData
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
    def tsk_rms_norm(
        self, x: CData, residual: CData, weight: CData, eps: float, rows: int, hidden: int, y: CData, isa: int
    ) -> int: ...
    def tsk_silu_mul(self, gate_up: CData, rows: int, n: int, y: CData, isa: int) -> int: ...
    def tsk_rope_store(
        self,
        qkv: CData,
        tokens: int,
        heads: int,
        kv_heads: int,
        head_dim: int,
        cos: CData,
        sin: CData,
        key_pages: CData,
        value_pages: CData,
        places: CData,
        queries: CData,
        isa: int,
    ) -> int: ...
    def tsk_attend(self, attention: CData, isa: int) -> int: ...

ffi: FFI
lib: Lib
