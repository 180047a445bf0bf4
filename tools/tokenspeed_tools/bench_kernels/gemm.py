"""Products of Llama-3.1-8B's shapes, bfloat16: each solution by itself, and a layer's four in a chain."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import torch
from tokenspeed_kernels import gemm, override_kernels, selector
from tokenspeed_kernels.gemm import LinearKernel

from tokenspeed_tools.bench_kernels.case import Case
from tokenspeed_tools.bench_kernels.timing import Ring

# (outputs, inputs) of a layer in its order, and of the head.
LAYER = ((6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336))
HEAD = (128256, 4096)
TOKENS = (1, 2, 4, 8, 16, 32, 64, 128)
SOLUTIONS = ("torch", "triton", "triton_pdl")
DTYPE = torch.bfloat16


def cases() -> Iterator[Case]:
    """Yield the products of each shape, then whole layers."""
    solutions = _solutions()
    for shape in (*LAYER, HEAD):
        weights = ring(shape)
        mode = "head" if shape == HEAD else "linear"
        for tokens, (name, kernels) in itertools.product(TOKENS, solutions.items()):
            yield case(f"{mode} {shape[0]}x{shape[1]} x{tokens} / {name}", kernels[mode], weights, shape, tokens)
    layers = Ring(lambda: [weight(shape) for shape in LAYER], sum(map(size_bytes, LAYER)))
    moved = sum(map(size_bytes, LAYER))
    for tokens, (name, kernels) in itertools.product(TOKENS, solutions.items()):
        run = _chain(kernels["linear"], layers, tokens)
        yield Case(f"a layer's four x{tokens} / {name}", run, moved, tokens * moved)


def _solutions() -> dict[str, dict[str, LinearKernel]]:
    """Return each solution's kernels by mode."""
    kernels = selector("cuda", capability=torch.cuda.get_device_capability())
    found = {}
    for solution in SOLUTIONS:
        with override_kernels({"gemm": solution}):
            found[solution] = {"linear": gemm.linear(kernels, DTYPE), "head": gemm.head(kernels, DTYPE)}
    return found


def _chain(kernel: LinearKernel, layers: Ring[list[torch.Tensor]], tokens: int) -> Callable[[], object]:
    """Return a call of a layer's products, each fed by the one before."""
    x = torch.randn(tokens, LAYER[0][1], dtype=DTYPE, device="cuda")

    def run() -> torch.Tensor:
        flowing = x
        for matrix in layers.next():
            flowing = kernel(flowing[:, : matrix.shape[0]], matrix)
        return flowing

    return run


def weight(shape: tuple[int, int]) -> torch.Tensor:
    """Return a random weight as the loader hands it over: the transposed view of [out, in]."""
    return torch.randn(shape, dtype=DTYPE, device="cuda").mul_(shape[1] ** -0.5).t()


def ring(shape: tuple[int, int]) -> Ring[torch.Tensor]:
    """Return enough weights of a shape to pass the L2 cache."""
    return Ring(lambda: weight(shape), size_bytes(shape))


def case(
    name: str,
    kernel: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    weights: Ring[torch.Tensor],
    shape: tuple[int, int],
    tokens: int,
) -> Case:
    """Return the case of `kernel` on `tokens` random vectors."""
    x = torch.randn(tokens, shape[1], dtype=DTYPE, device="cuda")
    return Case(name, lambda: kernel(x, weights.next()), size_bytes(shape), 2 * tokens * shape[0] * shape[1])


def size_bytes(shape: tuple[int, int]) -> int:
    """Return the bytes of a weight."""
    return shape[0] * shape[1] * DTYPE.itemsize
