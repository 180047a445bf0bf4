"""`attention.decode` in Triton: every row's keys are cut into pieces, the cut is made on the device.

A piece is a run of blocks of one row and one key head, and one program. The device knows the lengths,
so it spreads the blocks of all rows over the programs that the grid has: a long row among short ones
is cut finer, and a step of short rows uses few programs; the others leave at once. The last program
of a (row, key head) to finish merges the pieces, in their order.

Needs no plan and nothing from the host but `rows`, so a graph may hold it.

Invariant: `arrivals` is zero between launches, and equal inputs on an equal grid give equal bits.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from tokenspeed_kernels.aot import Launch
from tokenspeed_kernels.attention.rows import DECODE_ROWS_MAX, DecodeRows
from tokenspeed_kernels.spec import KernelError

# Rows are scanned as one vector; few sizes, so that few variants are compiled.
SCAN_ROWS = (16, 128, DECODE_ROWS_MAX)
# tl.dot takes no fewer query heads.
DOT_ROWS = 16
# Elements of partial results that a program holds at once while it merges.
MERGE_ELEMENTS = 4096


@dataclass(frozen=True, slots=True)
class Config:
    """How the kernel is launched.

    `block_tokens` keys are one tile. `programs_per_sm` pieces are aimed at on each multiprocessor; no
    piece is made shorter than `piece_tokens_min`.
    """

    block_tokens: int
    warps: int
    stages: int
    programs_per_sm: int
    piece_tokens_min: int


# What is worth timing. A stage of head_dim 128 in bf16 takes 32 KiB of shared memory
# with blocks of 64, the last stage none: 3 stages fit three times on a multiprocessor, 4 twice, 2 by registers 4 times.
CANDIDATES = {
    "w4s3x3": Config(64, 4, 3, 3, 256),
    "w4s3x2": Config(64, 4, 3, 2, 256),
    "w4s3x6": Config(64, 4, 3, 6, 256),
    "w4s3x3m128": Config(64, 4, 3, 3, 128),
    "w4s3x3m512": Config(64, 4, 3, 3, 512),
    "w4s2x4": Config(64, 4, 2, 4, 256),
    "w4s4x2": Config(64, 4, 4, 2, 256),
    "w8s3x3": Config(64, 8, 3, 3, 256),
    "b32w4s4x4": Config(32, 4, 4, 4, 256),
}
# float32 multiplies without matrix units and holds whole tiles in registers: small ones.
EXACT = Config(16, 4, 2, 4, 128)


# The fastest at most sizes of Llama 3.1 8B on an H200 (us): few rows, then many.
# 1 x 1K 8.5, 1 x 32K 47, 8 x 1K 16, 8 x 32K 262
FEW_ROWS = Config(64, 4, 3, 2, 128)
# 32 x 1K 37, 32 x 8K 256, 128 x 1K 131
MANY_ROWS = Config(64, 4, 4, 2, 256)
FEW_ROWS_MAX = 8


def choose(dtype: torch.dtype, rows: int) -> Config:
    """Return the configuration for `dtype` and a bucket of `rows`."""
    if dtype == torch.float32:
        return EXACT
    return FEW_ROWS if rows <= FEW_ROWS_MAX else MANY_ROWS


def decode_attention(
    queries: torch.Tensor,
    key_pages: torch.Tensor,
    value_pages: torch.Tensor,
    rows: DecodeRows,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return [rows, heads * head_dim]; arguments as in `DecodeKernel`."""
    return launch(queries, key_pages, value_pages, rows, out, choose(queries.dtype, len(queries)))


def launch(
    queries: torch.Tensor,
    key_pages: torch.Tensor,
    value_pages: torch.Tensor,
    rows: DecodeRows,
    out: torch.Tensor | None,
    config: Config,
) -> torch.Tensor:
    """Attend as `config` says."""
    count, heads, head_dim = queries.shape
    _, page_tokens, kv_heads, _ = key_pages.shape
    group = heads // kv_heads
    group_pad, dim_pad = triton.next_power_of_2(group), max(16, triton.next_power_of_2(head_dim))
    budget = max(1, processors(queries.device) * config.programs_per_sm // kv_heads)
    block = min(config.block_tokens, page_tokens)
    if out is None:
        out = queries.new_empty(count, heads * head_dim)
    # One line per program of a key head; `stats` has the largest score and the sum of weights.
    parts = queries.new_empty((count + budget, kv_heads, group_pad, dim_pad), dtype=torch.float32)
    stats = queries.new_empty((count + budget, kv_heads, 2, group_pad), dtype=torch.float32)
    _decode_kernel[(kv_heads, count + budget)](
        queries, key_pages, value_pages, rows.slots, rows.positions, rows.page_table, out,
        parts, stats, arrivals(queries.device, count * kv_heads),
        count, budget, rows.page_table.stride(0), head_dim**-0.5 * math.log2(math.e),
        kv_heads, group, head_dim, page_tokens, block, max(1, config.piece_tokens_min // block),
        _scan_rows(count), group_pad, max(DOT_ROWS, group_pad), dim_pad,
        max(2, MERGE_ELEMENTS // (group_pad * dim_pad)),
        num_warps=config.warps, num_stages=config.stages,
    )  # fmt: skip
    return out


@functools.cache
def processors(device: torch.device) -> int:
    """Return the multiprocessors of `device`; without a GPU a small number, as the interpreter is slow."""
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 2


def arrivals(device: torch.device, count: int) -> torch.Tensor:
    """Return the counters of finished pieces, int32, one for each (row, key head), all zero.

    Launches on one stream share them; they live as long as the process, since graphs keep addresses.
    """
    return _arrivals(device, max(1024, triton.next_power_of_2(count)))


@functools.cache
def _arrivals(device: torch.device, count: int) -> torch.Tensor:
    if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
        raise KernelError("attention must have run once with these sizes before a graph captures it.")
    return torch.zeros(count, dtype=torch.int32, device=device)


def _scan_rows(count: int) -> int:
    for size in SCAN_ROWS:
        if count <= size:
            return size
    raise KernelError(f"a step has {count} decode rows; attention takes {SCAN_ROWS[-1]} at most.")


# Nothing here may depend on a step: what is compiled for the first is what runs in all others.
@triton.jit(
    do_not_specialize=["count", "budget", "table_stride"],
    do_not_specialize_on_alignment=["slots", "positions", "page_table"],
)
def _decode_kernel(
    queries: tl.tensor, keys: tl.tensor, values: tl.tensor,
    slots: tl.tensor, positions: tl.tensor, page_table: tl.tensor, out: tl.tensor,
    parts: tl.tensor, stats: tl.tensor, arrived: tl.tensor,
    count: int, budget: int, table_stride: int, scale: float,
    KV_HEADS: tl.constexpr, GROUP: tl.constexpr, HEAD_DIM: tl.constexpr, PAGE: tl.constexpr,
    BLOCK: tl.constexpr, BLOCKS_MIN: tl.constexpr,
    SCAN: tl.constexpr, GROUP_PAD: tl.constexpr, HEADS: tl.constexpr, DIMS: tl.constexpr, MERGE: tl.constexpr,
) -> None:  # fmt: skip
    """One piece of one (row, key head); grid (kv_heads, count + budget). `scale` includes log2(e)."""
    kv_head = tl.program_id(0)
    piece = tl.program_id(1)

    # The cut: pieces of `quantum` blocks at most, numbered row after row. With T blocks in all, quantum is
    # at least T / budget, so there are fewer than count + budget pieces.
    index = tl.arange(0, SCAN)
    blocks = tl.where(index < count, tl.load(positions + index, mask=index < count, other=0) // BLOCK + 1, 0)
    quantum = tl.maximum(tl.cdiv(tl.sum(blocks, 0), budget), BLOCKS_MIN)
    pieces = (blocks + quantum - 1) // quantum
    ends = tl.cumsum(pieces, 0)
    row = tl.sum((ends <= piece).to(tl.int32), 0)
    if row >= count:
        return
    position = tl.load(positions + row)
    slot = tl.load(slots + row)
    row_blocks = position // BLOCK + 1
    row_pieces = tl.cdiv(row_blocks, quantum)
    first_piece = tl.sum(tl.where(index < row, pieces, 0), 0)
    own = piece - first_piece
    first = own * row_blocks // row_pieces
    last = (own + 1) * row_blocks // row_pieces

    member = tl.arange(0, HEADS)
    dims = tl.arange(0, DIMS)
    tokens = tl.arange(0, BLOCK)
    real = dims < HEAD_DIM
    head = kv_head * GROUP + member
    places = (row * KV_HEADS * GROUP + head[:, None]) * HEAD_DIM + dims[None, :]
    query = tl.load(queries + places, mask=(member < GROUP)[:, None] & real[None, :], other=0.0)

    table = page_table + slot.to(tl.int64) * table_stride
    stride: tl.constexpr = KV_HEADS * HEAD_DIM
    keys += kv_head * HEAD_DIM
    values += kv_head * HEAD_DIM
    top = tl.full([HEADS], float("-inf"), tl.float32)
    total = tl.zeros([HEADS], tl.float32)
    gathered = tl.zeros([HEADS, DIMS], tl.float32)
    # The page of a block is loaded an iteration ahead: were it loaded where it is used, the compiler would
    # give half of its stages to that load.
    page = tl.load(table + first * BLOCK // PAGE)
    for block in range(first, last):
        start = block * BLOCK
        base = page.to(tl.int64) * PAGE * stride + (start % PAGE) * stride
        page = tl.load(table + tl.minimum(block + 1, last - 1) * BLOCK // PAGE)
        # What lies behind the position is not read: it may be anything, and 0 times NaN is NaN.
        seen = start + tokens <= position
        key = tl.load(
            keys + base + tokens[None, :] * stride + dims[:, None], mask=seen[None, :] & real[:, None], other=0.0
        )
        scores = tl.dot(query, key, input_precision="ieee") * scale
        scores = tl.where(seen[None, :], scores, float("-inf"))
        higher = tl.maximum(top, tl.max(scores, 1))
        weights = tl.exp2(scores - higher[:, None])
        fade = tl.exp2(top - higher)
        total = total * fade + tl.sum(weights, 1)
        value = tl.load(
            values + base + tokens[:, None] * stride + dims[None, :], mask=seen[:, None] & real[None, :], other=0.0
        )
        gathered = tl.dot(weights.to(value.dtype), value, gathered * fade[:, None], input_precision="ieee")
        top = higher

    if row_pieces == 1:
        result = gathered / total[:, None]
        tl.store(out + places, result.to(out.dtype.element_ty), mask=(member < GROUP)[:, None] & real[None, :])
        return

    line = piece * KV_HEADS + kv_head
    kept = member < GROUP_PAD
    tl.store(
        parts + (line * GROUP_PAD + member[:, None]) * DIMS + dims[None, :],
        gathered,
        mask=kept[:, None],
    )
    tl.store(stats + line * 2 * GROUP_PAD + member, top, mask=kept)
    tl.store(stats + (line * 2 + 1) * GROUP_PAD + member, total, mask=kept)
    # All threads' stores come before the count (the barrier), and the count publishes them (release);
    # who counts last sees the stores of all others (acquire).
    tl.debug_barrier()
    before = tl.atomic_add(arrived + row * KV_HEADS + kv_head, 1, sem="acq_rel", scope="gpu")
    tl.debug_barrier()
    if before == row_pieces - 1:
        _merge(
            parts, stats, out, first_piece, row_pieces, row, kv_head,
            KV_HEADS, GROUP, HEAD_DIM, GROUP_PAD, DIMS, MERGE,
        )  # fmt: skip
        # The next launch comes after this one on the stream and starts from zero.
        tl.store(arrived + row * KV_HEADS + kv_head, 0)


@triton.jit
def _merge(
    parts: tl.tensor, stats: tl.tensor, out: tl.tensor,
    first_piece: tl.tensor, row_pieces: tl.tensor, row: tl.tensor, kv_head: tl.tensor,
    KV_HEADS: tl.constexpr, GROUP: tl.constexpr, HEAD_DIM: tl.constexpr,
    GROUP_PAD: tl.constexpr, DIMS: tl.constexpr, MERGE: tl.constexpr,
) -> None:  # fmt: skip
    """Write one (row, key head) from its pieces, in their order, MERGE of them at a time."""
    member = tl.arange(0, GROUP_PAD)
    dims = tl.arange(0, DIMS)
    top = tl.full([GROUP_PAD], float("-inf"), tl.float32)
    total = tl.zeros([GROUP_PAD], tl.float32)
    merged = tl.zeros([GROUP_PAD, DIMS], tl.float32)
    for start in range(0, row_pieces, MERGE):
        index = start + tl.arange(0, MERGE)
        live = index < row_pieces
        line = (first_piece + index) * KV_HEADS + kv_head
        at = line[:, None] * 2 * GROUP_PAD + member[None, :]
        # .cg: from the L2, where other multiprocessors' stores are
        tops = tl.load(stats + at, mask=live[:, None], other=float("-inf"), cache_modifier=".cg")
        totals = tl.load(stats + at + GROUP_PAD, mask=live[:, None], other=0.0, cache_modifier=".cg")
        places = (line[:, None, None] * GROUP_PAD + member[None, :, None]) * DIMS + dims[None, None, :]
        gathered = tl.load(parts + places, mask=live[:, None, None], other=0.0, cache_modifier=".cg")
        higher = tl.maximum(top, tl.max(tops, 0))
        fade = tl.exp2(top - higher)
        weights = tl.exp2(tops - higher[None, :])
        total = total * fade + tl.sum(totals * weights, 0)
        merged = merged * fade[:, None] + tl.sum(gathered * weights[:, :, None], 0)
        top = higher
    result = merged / total[:, None]
    places = (row * KV_HEADS * GROUP + kv_head * GROUP + member[:, None]) * HEAD_DIM + dims[None, :]
    mask = (member < GROUP)[:, None] & (dims < HEAD_DIM)[None, :]
    tl.store(out + places, result.to(out.dtype.element_ty), mask=mask)


def _aot(dtype: str, kv_heads: int, group: int, head_dim: int, config: Config, scan: int) -> Launch:
    group_pad = triton.next_power_of_2(group)
    constants = {"KV_HEADS": kv_heads, "GROUP": group, "HEAD_DIM": head_dim, "PAGE": 64, "BLOCK": config.block_tokens}
    constants |= {"BLOCKS_MIN": config.piece_tokens_min // config.block_tokens, "SCAN": scan, "GROUP_PAD": group_pad}
    constants |= {"HEADS": DOT_ROWS, "DIMS": head_dim, "MERGE": MERGE_ELEMENTS // (group_pad * head_dim)}
    types = f"*{dtype} *{dtype} *{dtype} *i32 *i32 *i32 *{dtype} *fp32 *fp32 *i32 i32 i32 i32 fp32"
    return Launch(_decode_kernel, types, constants, config.warps, config.stages)


AOT = (
    _aot("bf16", 8, 4, 128, FEW_ROWS, 16),
    _aot("bf16", 8, 4, 128, MANY_ROWS, 128),
    _aot("bf16", 3, 3, 64, FEW_ROWS, 16),
    _aot("fp32", 3, 3, 64, EXACT, 16),
)
