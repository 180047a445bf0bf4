"""Products with weights on the GPU against float64."""

from __future__ import annotations

import pytest
import torch
from tokenspeed_kernels import selector
from tokenspeed_kernels.gemm import head, linear, triton_skinny
from tokenspeed_kernels.gemm.skinny_configs import (
    SHARED_BYTES_MAX,
    SM90,
    TOKEN_TILES,
    TOKENS_MAX,
    Config,
    candidates,
    choose,
)

from tests.kernels.numerics import BF16, CAPABILITY, ERROR_MAX, F16, F32, GPU_DTYPES, draw, error

KERNELS = selector("cuda", capability=CAPABILITY)
TOKENS = (1, 2, 3, 8, 15, 16, 17, 32, 33, 40)
SHAPES = ((37, 130), (64, 256), (1, 7))
LLAMA8B = ((6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336), (128256, 4096))
# Splits that share evenly, unevenly, and leave the last program without inputs.
SPLITS = (Config(4, 32, 2), Config(2, 16, 3), Config(4, 32, 5), Config(8, 64, 8), Config(1, 256))

pytestmark = pytest.mark.usefixtures("poisoned")


def _weight(outputs: int, inputs: int, dtype: torch.dtype, device: str) -> torch.Tensor:
    """Return a weight as the loader hands it over: the transposed view of some rows of a larger matrix."""
    return draw(outputs + 3, inputs + 16, dtype=dtype, device=device)[2:-1, :inputs].t()


@pytest.mark.parametrize("dtype", GPU_DTYPES)
@pytest.mark.parametrize("tokens", TOKENS)
def test_linear(tokens: int, dtype: torch.dtype, device: str) -> None:
    """The product, for sizes that fill no tile, and rows of x that may lie apart."""
    for outputs, inputs in SHAPES:
        x = draw(tokens, inputs + 16, dtype=dtype, device=device)[:, :inputs]
        weight = _weight(outputs, inputs, dtype, device)
        seen = linear(KERNELS, dtype)(x, weight)
        assert seen.dtype is dtype
        assert error(seen, x.double() @ weight.double()) < ERROR_MAX[dtype]


@pytest.mark.parametrize("dtype", GPU_DTYPES)
@pytest.mark.parametrize("rows", [1, 5, 32, 40])
def test_head(rows: int, dtype: torch.dtype, device: str) -> None:
    """Logits are float32 and not rounded on the way."""
    if rows > TOKENS_MAX and dtype is not F32 and device == "cpu":
        pytest.skip("torch multiplies halves into float32 on a GPU only")
    x, weight = draw(rows, 300, dtype=dtype, device=device), _weight(77, 300, dtype, device)
    logits = head(KERNELS, dtype)(x, weight)
    assert logits.dtype is F32
    assert error(logits, x.double() @ weight.double()) < ERROR_MAX[F32]


@pytest.mark.parametrize(("tokens", "dtype"), [(1, BF16), (2, F16), (16, BF16), (20, F16)])
def test_splits(tokens: int, dtype: torch.dtype, device: str) -> None:
    """Partial sums add up, in an order that is always the same, and the counters are left at zero."""
    x, weight = draw(tokens, 144, dtype=dtype, device=device), _weight(19, 144, dtype, device)
    wanted = x.double() @ weight.double()
    for config in SPLITS:
        if tokens > 1:
            config = Config(16, config.block_in, config.split, stages=3)
        runs = [triton_skinny.launch(x, weight, x.new_empty(tokens, 19, dtype=F32), config) for _ in range(2)]
        assert error(runs[0], wanted) < ERROR_MAX[F32]
        assert all(torch.equal(run, runs[0]) for run in runs)
    assert not triton_skinny._arrivals(x.device).any()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="real sizes take a GPU")
@pytest.mark.parametrize("tokens", [1, 2, 16, 32])
def test_real_sizes_many_times(tokens: int) -> None:
    """Programs arrive in another order on each run; the bits stay."""
    for outputs, inputs in ((1024, 4096), (4096, 14336), (6144, 4096)):
        x, weight = draw(tokens, inputs, dtype=BF16, device="cuda"), _weight(outputs, inputs, BF16, "cuda")
        # The rule's own and a few more: each is compiled.
        for config in candidates(outputs, inputs, tokens)[::12]:
            runs = [triton_skinny.launch(x, weight, x.new_empty(tokens, outputs), config) for _ in range(10)]
            assert error(runs[0], x.double() @ weight.double()) < ERROR_MAX[BF16], config
            assert all(torch.equal(run, runs[0]) for run in runs), config


@pytest.mark.parametrize("dtype", [F16, BF16])
def test_other_layouts_go_to_blas(dtype: torch.dtype, device: str) -> None:
    """A weight whose outputs lie side by side, a strided x, no token at all."""
    weight, x = draw(40, 24, dtype=dtype, device=device), draw(3, 80, dtype=dtype, device=device)
    for vectors, matrix in ((x[:, :40], weight), (x[:, ::2], weight.t().contiguous().t()), (x[:0, :40], weight)):
        assert triton_skinny.plan(vectors, matrix) is None
        torch.testing.assert_close(linear(KERNELS, dtype)(vectors, matrix), torch.mm(vectors, matrix))


def test_the_choice_is_by_shape() -> None:
    """One configuration for all token counts of a tile; past the last tile cuBLAS."""
    for outputs, inputs in (*SHAPES, *LLAMA8B):
        for tile, below in zip(TOKEN_TILES, (0, *TOKEN_TILES), strict=False):
            assert len({choose(outputs, inputs, tokens) for tokens in range(below + 1, tile + 1)}) == 1
        assert choose(outputs, inputs, TOKENS_MAX + 1) is None


@pytest.mark.parametrize("tile", TOKEN_TILES)
def test_candidates(tile: int) -> None:
    """Each is another, fits into shared memory and gives every program something to do."""
    for outputs, inputs in (*SHAPES, *LLAMA8B):
        listed = candidates(outputs, inputs, tile)
        assert len(set(listed)) == len(listed) > 0
        for config in listed:
            assert tile == 1 or 2 * config.stages * config.block_in * (config.block_out + tile) <= SHARED_BYTES_MAX
    assert len(candidates(4096, 4096, tile)) > 10


def test_the_table_names_tiles() -> None:
    """A key that no choice asks for would be dead."""
    assert {tile for _, _, tile in SM90} <= set(TOKEN_TILES)


def test_head_on_the_cpu() -> None:
    """The reference: plain products in the dtype."""
    kernel = head(selector("cpu"), F32)
    x, weight = draw(3, 20), draw(20, 9)
    assert error(kernel(x, weight), x.double() @ weight.double()) < ERROR_MAX[F32]
    assert kernel(x.double(), weight.double()).dtype is torch.float64
