"""The tensors and calls of one step's kernels, with the demo model's shapes.

Owns weights for every layer, so that together they are larger than a core's caches as in a step,
and pages of keys and values for one layer. A copy between two tensors of the same size as the
weights says what memory gives in the same round.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial

import torch
from tokenspeed_kernels import native
from tokenspeed_kernels.attention import AttentionRows, native_paged
from tokenspeed_kernels.gemm.native_packed import packed
from tokenspeed_kernels.gemm.packed_weight import PackedWeight, pack, packed_bytes

from tokenspeed_tools.bench_suite.part import Sizes
from tokenspeed_tools.bench_suite.timing import seconds_of

HIDDEN, INNER, HEADS, KV_HEADS, HEAD_DIM = 576, 1536, 9, 3, 64
#: Outputs and inputs of a layer's products: queries, keys and values; output; gate and up; down.
SHAPES = (((HEADS + 2 * KV_HEADS) * HEAD_DIM, HIDDEN), (HIDDEN, HIDDEN), (2 * INNER, HIDDEN), (HIDDEN, INNER))
BITS = 4
PAGE_TOKENS = 16
FLOAT_BYTES = 4
ROW_COUNTS = (1, 16, 256)


class StepKernels:
    """The kernels of a step, ready to be timed."""

    def __init__(self, sizes: Sizes) -> None:
        self._threads = len(os.sched_getaffinity(0))
        native.set_threads(self._threads)
        self._layers = [[_weight(*shape) for shape in SHAPES] for _ in range(sizes["layers"])]
        self._inputs = {rows: [torch.randn(rows, inputs) for _, inputs in SHAPES] for rows in ROW_COUNTS}
        self._decode = _Attention(sizes["rows"], 1, sizes["context"])
        self._chunk = _Attention(1, sizes["chunk"], sizes["context"])
        self._source = torch.ones(self._weight_bytes() // FLOAT_BYTES)
        self._copied = torch.empty_like(self._source)

    def values(self, repeats: int) -> dict[str, float]:
        """Return the figures of one round."""
        torch.set_num_threads(self._threads)
        seconds = {rows: _fastest_s(partial(self._products, rows), repeats) for rows in ROW_COUNTS}
        # A copy reads and writes each byte, a product only reads.
        copy_gb_s = 2 * self._weight_bytes() / _fastest_s(self._copy, repeats) / 1e9
        products_gb_s = self._weight_bytes() / seconds[1] / 1e9
        attention_gb_s = self._decode.kv_bytes / _fastest_s(self._decode.run, repeats) / 1e9
        return {
            "products_1_row_gb_s": products_gb_s,
            "products_1_row_of_copy": products_gb_s / copy_gb_s,
            "products_16_rows_gmac_s": self._macs(16) / seconds[16] / 1e9,
            "products_256_rows_gmac_s": self._macs(256) / seconds[256] / 1e9,
            "attention_16_rows_gb_s": attention_gb_s,
            "attention_16_rows_of_copy": attention_gb_s / copy_gb_s,
            "attention_chunk_gmac_s": self._chunk.macs / _fastest_s(self._chunk.run, repeats) / 1e9,
        }

    def _products(self, rows: int) -> None:
        for layer in self._layers:
            for weight, x in zip(layer, self._inputs[rows], strict=True):
                packed(x, weight)

    def _copy(self) -> None:
        self._copied.copy_(self._source)

    def _weight_bytes(self) -> int:
        return len(self._layers) * sum(packed_bytes(*shape, BITS, has_low=True) for shape in SHAPES)

    def _macs(self, rows: int) -> int:
        return rows * len(self._layers) * sum(outputs * inputs for outputs, inputs in SHAPES)


class _Attention:
    """Attention of one layer: `rows` of `queries` tokens each, behind `context` keys in scattered pages."""

    def __init__(self, rows: int, queries: int, context: int) -> None:
        pages = -(-(context + queries) // PAGE_TOKENS)
        table = torch.randperm(rows * pages).view(rows, pages)
        self._rows = AttentionRows(torch.full((rows,), queries), torch.full((rows,), context), table)
        self._keys, self._values = (torch.randn(rows * pages, PAGE_TOKENS, KV_HEADS, HEAD_DIM) for _ in range(2))
        self._queries = torch.randn(rows * queries, HEADS, HEAD_DIM)
        keys_seen = rows * sum(context + query + 1 for query in range(queries))
        self.kv_bytes = rows * (context + queries) * 2 * KV_HEADS * HEAD_DIM * FLOAT_BYTES
        self.macs = keys_seen * 2 * HEADS * HEAD_DIM

    def run(self) -> None:
        """Compute it once."""
        native_paged.paged_attention(self._queries, self._keys, self._values, self._rows)


def _weight(outputs: int, inputs: int) -> PackedWeight:
    blocks = (outputs, inputs // native.BLOCK)
    return pack(torch.randint(0, 16, (outputs, inputs)), torch.rand(blocks) / 100, torch.rand(blocks) / 100, BITS)


def _fastest_s(call: Callable[[], None], repeats: int) -> float:
    call()
    return min(seconds_of(call) for _ in range(repeats))
