"""`attention.extend` in Triton: causal attention of several queries a row, over pages.

The query heads of one key head are laid side by side with the queries, so that a tile of `tile_rows`
(query, head) pairs reads each key once and few queries fill a tile as well as many. The tiles of a
step are listed on the host, heaviest first, and uploaded once for all layers.

Invariant: a tile reads no key behind the last one that its last query sees.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
import triton
import triton.language as tl

from tokenspeed_kernels.aot import Launch
from tokenspeed_kernels.attention.rows import ExtendRows

# A tile's entry: its row's first token in the step, the tile's first (query, head) pair in its row, the
# row's count and context, and where its pages start in the flat table.
TILE_INTS = 5


@dataclass(frozen=True, slots=True)
class Config:
    """How the kernel is launched: `tile_rows` (query, head) pairs against `block_tokens` keys at a time."""

    tile_rows: int
    block_tokens: int
    warps: int
    stages: int


# What is worth timing; `choose` takes from here.
CANDIDATES = {
    "m128n64w8s3": Config(128, 64, 8, 3),
    "m128n64w8s2": Config(128, 64, 8, 2),
    "m64n64w4s3": Config(64, 64, 4, 3),
    "m64n64w4s2": Config(64, 64, 4, 2),
}
# float32 multiplies without matrix units and holds whole tiles in registers: small ones.
EXACT = Config(32, 16, 8, 2)


@dataclass(frozen=True, slots=True)
class Tiles:
    """A step's tiles on the device: int32 [tiles, TILE_INTS], and all rows' pages, int32, flat."""

    tiles: torch.Tensor
    pages: torch.Tensor


def choose(dtype: torch.dtype) -> Config:
    """Return the configuration for `dtype`."""
    return EXACT if dtype == torch.float32 else CANDIDATES["m128n64w8s3"]


def extend_attention(
    queries: torch.Tensor,
    key_pages: torch.Tensor,
    value_pages: torch.Tensor,
    rows: ExtendRows,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return [tokens, heads * head_dim]; arguments as in `ExtendKernel`."""
    return launch(queries, key_pages, value_pages, rows, out, choose(queries.dtype))


def launch(
    queries: torch.Tensor,
    key_pages: torch.Tensor,
    value_pages: torch.Tensor,
    rows: ExtendRows,
    out: torch.Tensor | None,
    config: Config,
) -> torch.Tensor:
    """Attend as `config` says."""
    tokens, heads, head_dim = queries.shape
    _, page_tokens, kv_heads, _ = key_pages.shape
    group = heads // kv_heads
    if out is None:
        out = queries.new_empty(tokens, heads * head_dim)
    listed = rows.prepared(upload_tiles, (config.tile_rows, group, queries.device))
    _extend_kernel[(len(listed.tiles) * kv_heads,)](
        queries, key_pages, value_pages, listed.tiles, listed.pages, out, head_dim**-0.5 * math.log2(math.e),
        kv_heads, group, head_dim, page_tokens,
        config.tile_rows, min(config.block_tokens, page_tokens), max(16, triton.next_power_of_2(head_dim)), TILE_INTS,
        num_warps=config.warps, num_stages=config.stages,
    )  # fmt: skip
    return out


def upload_tiles(rows: ExtendRows, key: tuple[int, int, torch.device]) -> Tiles:
    """Return the tiles of a step for `key`: (tile_rows, query heads of a key head, device)."""
    tile_rows, group, device = key
    tiles = list_tiles(rows, tile_rows, group)
    packed = torch.from_numpy(np.concatenate([tiles.ravel(), rows.table.ravel()]))
    if device.type == "cuda":
        # Pinned, so that the copy does not wait; torch gives the memory out again only after it.
        packed = packed.pin_memory().to(device, non_blocking=True)
    return Tiles(packed[: tiles.size].view(-1, TILE_INTS), packed[tiles.size :])


def list_tiles(rows: ExtendRows, tile_rows: int, group: int) -> np.typing.NDArray[np.int32]:
    """Return int32 [tiles, TILE_INTS], those with the most keys first."""
    tiles_of = -(-rows.counts * group // tile_rows)
    row = np.repeat(np.arange(len(rows.counts)), tiles_of)
    within = np.arange(len(row)) - np.repeat(np.cumsum(tiles_of) - tiles_of, tiles_of)
    first_token = (np.cumsum(rows.counts) - rows.counts)[row]
    columns = (first_token, within * tile_rows, rows.counts[row], rows.contexts[row], row * rows.table.shape[1])
    tiles = np.stack(columns, axis=1).astype(np.int32)
    keys = rows.contexts[row] + np.minimum(rows.counts[row], (within + 1) * tile_rows // group)
    return np.ascontiguousarray(tiles[np.argsort(-keys, kind="stable")])


# The pages lie behind the tiles, at any alignment; a step must not need a variant of its own.
@triton.jit(do_not_specialize_on_alignment=["tiles", "pages"])
def _extend_kernel(
    queries: tl.tensor, keys: tl.tensor, values: tl.tensor, tiles: tl.tensor, pages: tl.tensor, out: tl.tensor,
    scale: float,
    KV_HEADS: tl.constexpr, GROUP: tl.constexpr, HEAD_DIM: tl.constexpr, PAGE: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr, DIMS: tl.constexpr, TILE: tl.constexpr,
) -> None:  # fmt: skip
    """One tile of one key head; grid (tiles * kv_heads). `scale` includes log2(e)."""
    kv_head = tl.program_id(0) % KV_HEADS
    entry = tiles + tl.program_id(0) // KV_HEADS * TILE
    token = tl.load(entry)
    first = tl.load(entry + 1)
    count = tl.load(entry + 2)
    context = tl.load(entry + 3)
    table = pages + tl.load(entry + 4)

    pair = first + tl.arange(0, ROWS)
    query_index = pair // GROUP
    dims = tl.arange(0, DIMS)
    head = kv_head * GROUP + pair % GROUP
    places = ((token + query_index).to(tl.int64) * KV_HEADS * GROUP + head)[:, None] * HEAD_DIM + dims[None, :]
    mask = (query_index < count)[:, None] & (dims < HEAD_DIM)[None, :]
    query = tl.load(queries + places, mask=mask, other=0.0)

    # Pairs behind the row's last query see what that one sees, and are not stored.
    last_seen = context + tl.minimum(query_index, count - 1)
    keys_seen = context + tl.minimum(count, (first + ROWS - 1) // GROUP + 1)
    # Blocks that the first query sees whole, and all that the last one sees something of.
    whole = (context + first // GROUP + 1) // BLOCK
    blocks = tl.cdiv(keys_seen, BLOCK)
    keys += kv_head * HEAD_DIM
    values += kv_head * HEAD_DIM
    top = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    gathered = tl.zeros([ROWS, DIMS], tl.float32)
    top, total, gathered = _attend(
        query, keys, values, table, 0, whole, blocks, last_seen, keys_seen, top, total, gathered, scale,
        KV_HEADS * HEAD_DIM, HEAD_DIM, PAGE, BLOCK, DIMS, False,
    )  # fmt: skip
    top, total, gathered = _attend(
        query, keys, values, table, whole, blocks, blocks, last_seen, keys_seen, top, total, gathered, scale,
        KV_HEADS * HEAD_DIM, HEAD_DIM, PAGE, BLOCK, DIMS, True,
    )  # fmt: skip
    result = gathered / total[:, None]
    tl.store(out + places, result.to(out.dtype.element_ty), mask=mask)


@triton.jit
def _attend(
    query: tl.tensor, keys: tl.tensor, values: tl.tensor, table: tl.tensor,
    begin: tl.tensor, end: tl.tensor, blocks: tl.tensor, last_seen: tl.tensor, keys_seen: tl.tensor,
    top: tl.tensor, total: tl.tensor, gathered: tl.tensor, scale: float,
    STRIDE: tl.constexpr, HEAD_DIM: tl.constexpr, PAGE: tl.constexpr, BLOCK: tl.constexpr, DIMS: tl.constexpr,
    MASKED: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor, tl.tensor]:  # fmt: skip
    """Take key blocks `begin` to `end` into (top, total, gathered), the softmax so far."""
    dims = tl.arange(0, DIMS)
    tokens = tl.arange(0, BLOCK)
    # The page of a block is loaded an iteration ahead: were it loaded where it is used, the compiler would
    # give half of its stages to that load.
    page = tl.load(table + tl.minimum(begin, blocks - 1) * BLOCK // PAGE)
    for block in range(begin, end):
        start = block * BLOCK
        base = page.to(tl.int64) * PAGE * STRIDE + (start % PAGE) * STRIDE
        page = tl.load(table + tl.minimum(block + 1, blocks - 1) * BLOCK // PAGE)
        key_at = keys + base + tokens[None, :] * STRIDE + dims[:, None]
        value_at = values + base + tokens[:, None] * STRIDE + dims[None, :]
        if MASKED:
            # What lies behind the last key is not read: it may be anything, and 0 times NaN is NaN.
            real = start + tokens < keys_seen
            key = tl.load(key_at, mask=real[None, :] & (dims < HEAD_DIM)[:, None], other=0.0)
            value = tl.load(value_at, mask=real[:, None] & (dims < HEAD_DIM)[None, :], other=0.0)
        elif DIMS > HEAD_DIM:
            key = tl.load(key_at, mask=(dims < HEAD_DIM)[:, None], other=0.0)
            value = tl.load(value_at, mask=(dims < HEAD_DIM)[None, :], other=0.0)
        else:
            key = tl.load(key_at)
            value = tl.load(value_at)
        scores = tl.dot(query, key, input_precision="ieee") * scale
        if MASKED:
            scores = tl.where(start + tokens[None, :] <= last_seen[:, None], scores, float("-inf"))
        higher = tl.maximum(top, tl.max(scores, 1))
        weights = tl.exp2(scores - higher[:, None])
        fade = tl.exp2(top - higher)
        total = total * fade + tl.sum(weights, 1)
        gathered = tl.dot(weights.to(value.dtype), value, gathered * fade[:, None], input_precision="ieee")
        top = higher
    return top, total, gathered


def _aot(dtype: str, kv_heads: int, group: int, head_dim: int, config: Config) -> Launch:
    constants = {"KV_HEADS": kv_heads, "GROUP": group, "HEAD_DIM": head_dim, "PAGE": 64, "DIMS": head_dim}
    constants |= {"ROWS": config.tile_rows, "BLOCK": config.block_tokens, "TILE": TILE_INTS}
    types = f"*{dtype} *{dtype} *{dtype} *i32 *i32 *{dtype} fp32"
    return Launch(_extend_kernel, types, constants, config.warps, config.stages)


AOT = (
    _aot("bf16", 8, 4, 128, CANDIDATES["m128n64w8s3"]),
    _aot("fp32", 3, 3, 64, EXACT),
)
