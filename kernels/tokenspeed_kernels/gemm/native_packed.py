"""The product with a packed weight by the native kernels.

The result is the same to the last bit for every number of rows and of threads, and on every
instruction set (native/include/tokenspeed_kernels.h).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from tokenspeed_kernels.gemm.packed_weight import PackedWeight
from tokenspeed_kernels.native import ISA, check, ffi, floats, int64s, lib

if TYPE_CHECKING:
    from tokenspeed_kernels._native import CData


def packed(x: torch.Tensor, weight: PackedWeight) -> torch.Tensor:
    """Return float32 x [rows, inputs] times `weight`: [rows, outputs]. A row's numbers lie side by side."""
    rows = x.shape[0]
    out = torch.empty(rows, weight.outputs)
    check(lib.tsk_matmul(_struct(weight), floats(x), x.stride(0), rows, floats(out), weight.outputs, ISA))
    return out


def packed_lookup(ids: torch.Tensor, table: PackedWeight) -> torch.Tensor:
    """Return the rows of `table` by int64 `ids` [tokens] as float32 [tokens, inputs]."""
    out = torch.empty(len(ids), table.inputs)
    check(lib.tsk_lookup(_struct(table), int64s(ids), len(ids), floats(out)))
    return out


def _struct(weight: PackedWeight) -> CData:
    made = weight.derived.get("native")
    if made is None:
        address = ffi.cast("uint8_t *", weight.data.data_ptr())
        fields = (address, weight.outputs, weight.inputs, weight.bits, int(weight.has_low))
        made = weight.derived["native"] = ffi.new("tsk_weight *", fields)
    return made  # type: ignore[return-value]
