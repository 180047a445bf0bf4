"""Rotary embedding and KV store in Triton, in one launch.

A program takes one token and a few of its heads, which may be query, key and value heads at once:
all are read, queries and keys turn in float32, and each goes where it belongs. Tokens that share a
place (a graph's padding, at place 0) overwrite each other; nobody reads them.

Invariant: nothing is written but the queries' tensor and the places named.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from tokenspeed_kernels.aot import Launch

# Elements of a program. 48 heads of 128 then take 6 programs a token: enough to hide one latency.
BLOCK = 1024
WARPS = 4


@triton.jit
def _rope_store(
    qkv: tl.tensor,
    cos: tl.tensor,
    sin: tl.tensor,
    keys: tl.tensor,
    values: tl.tensor,
    places: tl.tensor,
    queries: tl.tensor,
    heads: int,
    kv_heads: int,
    qkv_stride: int,
    rotation_stride: int,
    key_page_stride: int,
    key_token_stride: int,
    value_page_stride: int,
    value_token_stride: int,
    PAGE_TOKENS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    HALF_BLOCK: tl.constexpr,
    HEADS_BLOCK: tl.constexpr,
    PDL: tl.constexpr,
) -> None:
    HALF: tl.constexpr = HEAD_DIM // 2
    token = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1) * HEADS_BLOCK + tl.arange(0, HEADS_BLOCK)
    pair = tl.arange(0, HALF_BLOCK)
    in_half = pair < HALF
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()
    place = tl.load(places + token).to(tl.int64)
    turn = token * rotation_stride + pair
    cos_low = tl.load(cos + turn, mask=in_half, other=0.0)[None, :]
    cos_high = tl.load(cos + turn + HALF, mask=in_half, other=0.0)[None, :]
    sin_low = tl.load(sin + turn, mask=in_half, other=0.0)[None, :]
    sin_high = tl.load(sin + turn + HALF, mask=in_half, other=0.0)[None, :]

    inside = (head < heads + 2 * kv_heads)[:, None] & in_half[None, :]
    source = qkv + token * qkv_stride + head[:, None] * HEAD_DIM + pair[None, :]
    low = tl.load(source, mask=inside, other=0.0)
    high = tl.load(source + HALF, mask=inside, other=0.0)
    low32, high32 = low.to(tl.float32), high.to(tl.float32)
    turned_low = (low32 * cos_low + high32 * sin_low).to(low.dtype)
    turned_high = (high32 * cos_high + low32 * sin_high).to(low.dtype)

    # Heads lie [0, heads) queries, [heads, heads + kv_heads) keys, the rest values.
    is_query = (head < heads)[:, None] & inside
    target = queries + (token * heads + head[:, None]) * HEAD_DIM + pair[None, :]
    tl.store(target, turned_low, mask=is_query)
    tl.store(target + HALF, turned_high, mask=is_query)

    page, offset = place // PAGE_TOKENS, place % PAGE_TOKENS
    is_key = ((head >= heads) & (head < heads + kv_heads))[:, None] & inside
    target = keys + page * key_page_stride + offset * key_token_stride
    target += (head - heads)[:, None] * HEAD_DIM + pair[None, :]
    tl.store(target, turned_low, mask=is_key)
    tl.store(target + HALF, turned_high, mask=is_key)

    is_value = (head >= heads + kv_heads)[:, None] & inside
    target = values + page * value_page_stride + offset * value_token_stride
    target += (head - heads - kv_heads)[:, None] * HEAD_DIM + pair[None, :]
    tl.store(target, low, mask=is_value)
    tl.store(target + HALF, high, mask=is_value)


def rope_store(
    qkv: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    key_pages: torch.Tensor,
    value_pages: torch.Tensor,
    places: torch.Tensor,
    pdl: bool = False,
) -> torch.Tensor:
    """Rotate, store and return the queries; shapes as in `RopeStoreKernel`, `places` int32 or int64.

    Heads of a token lie side by side, in `qkv` and in the pages; the strides of tokens and pages are free.
    """
    tokens, all_heads, head_dim = qkv.shape
    _, page_tokens, kv_heads, _ = key_pages.shape
    heads = all_heads - 2 * kv_heads
    queries = qkv.new_empty(tokens, heads, head_dim)
    block = _blocks(head_dim)
    if tokens:
        _rope_store[(tokens, triton.cdiv(all_heads, block["HEADS_BLOCK"]))](
            qkv,
            cos,
            sin,
            key_pages,
            value_pages,
            places,
            queries,
            heads,
            kv_heads,
            qkv.stride(0),
            cos.stride(0),
            *key_pages.stride()[:2],
            *value_pages.stride()[:2],
            PAGE_TOKENS=page_tokens,
            HEAD_DIM=head_dim,
            **block,
            PDL=pdl,
            num_warps=WARPS,
            **({"launch_pdl": True} if pdl else {}),
        )
    return queries


def rope_store_pdl(
    qkv: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    key_pages: torch.Tensor,
    value_pages: torch.Tensor,
    places: torch.Tensor,
) -> torch.Tensor:
    """Do `rope_store`, started before the kernel in front has ended."""
    return rope_store(qkv, cos, sin, key_pages, value_pages, places, pdl=True)


def _blocks(head_dim: int) -> dict[str, int]:
    """Return the tile of a program: heads times half a head."""
    half = triton.next_power_of_2(head_dim // 2)
    return {"HALF_BLOCK": half, "HEADS_BLOCK": max(1, BLOCK // (2 * half))}


AOT = tuple(
    Launch(
        _rope_store,
        f"*{dtype} *fp32 *fp32 *{dtype} *{dtype} *{places} *{dtype} i32{heads} i32 i32:16 i32:16"
        " i32:16 i32:16 i32:16 i32:16",
        {"PAGE_TOKENS": 64, "HEAD_DIM": head_dim, **_blocks(head_dim), "PDL": pdl},
        warps=WARPS,
    )
    for dtype, places, heads, head_dim, pdl in (
        ("bf16", "i64", ":16", 128, True),
        ("bf16", "i32", ":16", 128, False),
        ("fp32", "i64", "", 64, False),
    )
)
