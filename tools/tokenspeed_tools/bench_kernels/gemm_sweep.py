"""Every candidate configuration of the skinny products, for the shapes of Llama-3.1-8B.

A group's name and its variants are written as `skinny_configs` holds them, so that the winners can
be put into its table as they are printed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from tokenspeed_kernels.gemm import torch_linear, triton_skinny
from tokenspeed_kernels.gemm.skinny_configs import Config, candidates

from tokenspeed_tools.bench_kernels.case import Case
from tokenspeed_tools.bench_kernels.gemm import HEAD, LAYER, case, ring
from tokenspeed_tools.bench_kernels.timing import Ring

# The tokens that stand for each tile of tokens.
TOKENS = {1: 1, 16: 8, 32: 32}


def cases() -> Iterator[Case]:
    """Yield cuBLAS, which the table calls None, and the candidates of each shape and tile."""
    for shape in (*LAYER, HEAD):
        weights = ring(shape)
        for tile in TOKENS:
            yield from _of_tile(shape, weights, tile)


def _of_tile(shape: tuple[int, int], weights: Ring[torch.Tensor], tile: int) -> Iterator[Case]:
    group = f"{(*shape, tile)}"
    is_head = shape == HEAD
    yield case(f"{group} / None", torch_linear.head if is_head else torch_linear.linear, weights, shape, TOKENS[tile])
    for config in candidates(*shape, TOKENS[tile]):
        yield case(f"{group} / {config}", _launch(config, is_head), weights, shape, TOKENS[tile])


def _launch(config: Config, is_head: bool) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    dtype = torch.float32 if is_head else None

    def run(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return triton_skinny.launch(x, weight, x.new_empty(len(x), weight.shape[1], dtype=dtype), config)

    return run
