"""What lies between the products, in Llama-3.1-8B's shapes, bfloat16: norms, activation, rope, lookup."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from tokenspeed_kernels import Selector, activation, embedding, norm, rope, selector

from tokenspeed_tools.bench_kernels.case import Case

HIDDEN, INTERMEDIATE, HEADS, KV_HEADS, HEAD_DIM, VOCAB, PAGE_TOKENS = 4096, 14336, 32, 8, 128, 128256, 64
TOKENS = (1, 32, 8192)
EPS = 1e-5
DTYPE = torch.bfloat16


def cases() -> Iterator[Case]:
    """Yield each kernel for a decoding row, a batch of them and a prefill."""
    for tokens in TOKENS:
        yield from _norms(tokens)
        yield _activation(tokens)
        yield _rope(tokens)
        yield _lookup(tokens)


def _norms(tokens: int) -> Iterator[Case]:
    x, residual, weight = _random(tokens, HIDDEN), _random(tokens, HIDDEN), _random(HIDDEN)
    rms, add_rms = norm.rms_norm(_kernels(), DTYPE), norm.add_rms_norm(_kernels(), DTYPE)
    row_bytes = tokens * HIDDEN * DTYPE.itemsize
    yield Case(f"rms norm x{tokens}", lambda: rms(x, weight, EPS), 2 * row_bytes)
    # The sum grows with every call; a residual of small numbers keeps it finite.
    residual *= 1e-3
    yield Case(f"add and rms norm x{tokens}", lambda: add_rms(x, residual, weight, EPS), 4 * row_bytes)


def _activation(tokens: int) -> Case:
    gate_up, kernel = _random(tokens, 2 * INTERMEDIATE), activation.silu_mul(_kernels(), DTYPE)
    return Case(f"silu and mul x{tokens}", lambda: kernel(gate_up), tokens * 3 * INTERMEDIATE * DTYPE.itemsize)


def _rope(tokens: int) -> Case:
    qkv = _random(tokens, HEADS + 2 * KV_HEADS, HEAD_DIM)
    turn = rope.rotation(torch.arange(tokens, device="cuda"), torch.rand(HEAD_DIM // 2, device="cuda"))
    pages = [_random(-(-tokens // PAGE_TOKENS), PAGE_TOKENS, KV_HEADS, HEAD_DIM) for _ in range(2)]
    places = torch.randperm(tokens, device="cuda")
    kernel = rope.rope_store(_kernels(), DTYPE, HEAD_DIM)
    moved = 2 * qkv.nbytes + 2 * turn[0].nbytes
    return Case(f"rope and store x{tokens}", lambda: kernel(qkv, *turn, pages[0], pages[1], places), moved)


def _lookup(tokens: int) -> Case:
    table, kernel = _random(VOCAB, HIDDEN).t(), embedding.lookup(_kernels(), DTYPE, sliced=False)
    ids = torch.randint(VOCAB, (tokens,), device="cuda")
    return Case(f"lookup x{tokens}", lambda: kernel(ids, table, 0), 2 * tokens * HIDDEN * DTYPE.itemsize)


def _kernels() -> Selector:
    return selector("cuda", capability=torch.cuda.get_device_capability())


def _random(*shape: int) -> torch.Tensor:
    return torch.randn(shape, dtype=DTYPE, device="cuda")
