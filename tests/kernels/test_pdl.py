"""Programmatic dependent launch on a GPU: a kernel that starts early reads nothing too early."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from tokenspeed_kernels import Selector, activation, gemm, norm, override_kernels, rope, selector

from tests.kernels.numerics import BF16, draw

HOPPER = torch.cuda.is_available() and torch.cuda.get_device_capability() >= (9, 0)
HIDDEN, HEADS, KV_HEADS, HEAD_DIM, INTERMEDIATE, LAYERS = 1024, 8, 4, 128, 3584, 6

pytestmark = pytest.mark.skipif(not HOPPER, reason="takes a Hopper GPU")


@dataclasses.dataclass
class Chain:
    """A few layers without attention: each kernel reads what the one before it wrote."""

    kernels: Selector
    weights: list[list[torch.Tensor]]
    scale: torch.Tensor
    turn: tuple[torch.Tensor, torch.Tensor]
    pages: torch.Tensor
    places: torch.Tensor

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        rms, add_rms = norm.rms_norm(self.kernels, BF16), norm.add_rms_norm(self.kernels, BF16)
        linear, head = gemm.linear(self.kernels, BF16), gemm.head(self.kernels, BF16)
        silu_mul, store = activation.silu_mul(self.kernels, BF16), rope.rope_store(self.kernels, BF16, HEAD_DIM)
        residual = x.clone()
        x = rms(x, self.scale, 1e-5)
        for qkv, o, gate_up, down in self.weights:
            heads = linear(x, qkv).view(len(x), -1, HEAD_DIM)
            x = linear(store(heads, *self.turn, self.pages[0], self.pages[1], self.places).flatten(1), o)
            x, residual = add_rms(x, residual, self.scale, 1e-5)
            x, residual = add_rms(linear(silu_mul(linear(x, gate_up)), down), residual, self.scale, 1e-5)
        return head(x, self.weights[0][0])


def _weight(outputs: int, inputs: int) -> torch.Tensor:
    return (draw(outputs, inputs) / math.sqrt(inputs)).to("cuda", BF16).t()


def _chain(tokens: int) -> Chain:
    width = (HEADS + 2 * KV_HEADS) * HEAD_DIM
    shapes = ((width, HIDDEN), (HIDDEN, HEADS * HEAD_DIM), (2 * INTERMEDIATE, HIDDEN), (HIDDEN, INTERMEDIATE))
    turn = rope.rotation(torch.arange(tokens, device="cuda"), torch.rand(HEAD_DIM // 2, device="cuda"))
    return Chain(
        selector("cuda", capability=torch.cuda.get_device_capability()),
        [[_weight(*shape) for shape in shapes] for _ in range(LAYERS)],
        draw(HIDDEN, dtype=BF16, device="cuda"),
        turn,
        torch.zeros(2, 2, 64, KV_HEADS, HEAD_DIM, dtype=BF16, device="cuda"),
        torch.randperm(128, device="cuda")[:tokens],
    )


@pytest.mark.parametrize("tokens", [1, 8, 32])
def test_a_graph_of_early_starts_gives_the_same_bits(tokens: int) -> None:
    """Fresh inputs for each replay; the plain kernels one by one are the reference."""
    chain, x = _chain(tokens), torch.zeros(tokens, HIDDEN, dtype=BF16, device="cuda")
    with override_kernels(dict.fromkeys(("norm", "gemm", "activation", "rope"), "triton_pdl")):
        for _ in range(2):
            chain(x)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            logits = chain(x)
    for _ in range(20):
        fresh = draw(tokens, HIDDEN, dtype=BF16, device="cuda")
        x.copy_(fresh)
        logits.fill_(float("nan"))
        graph.replay()
        seen, pages = logits.clone(), chain.pages.clone()
        wanted = chain(fresh)
        assert wanted.isfinite().all()
        assert torch.equal(seen, wanted)
        assert torch.equal(pages, chain.pages)
