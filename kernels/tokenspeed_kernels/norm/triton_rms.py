"""RMS normalisation in Triton: one program a row, a row wholly in registers.

The sum of squares is float32. A half-precision result is rounded before it is multiplied by the
weight, and the residual sum is rounded before it is normalised, as the published checkpoints were
trained and as transformers computes them.

Invariant: every element is read once and written once, whatever the row count.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from tokenspeed_kernels.aot import Launch

THREAD_ELEMENTS = 8
WARPS_MAX = 16


@triton.jit
def _rms(
    x: tl.tensor,
    residual: tl.tensor,
    weight: tl.tensor,
    out: tl.tensor,
    x_stride: int,
    residual_stride: int,
    eps: float,
    HIDDEN: tl.constexpr,
    BLOCK: tl.constexpr,
    ADD: tl.constexpr,
    PDL: tl.constexpr,
) -> None:
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < HIDDEN
    if PDL:
        # The weight is nobody's output, so it may be read before the kernel in front has ended.
        tl.extra.cuda.gdc_launch_dependents()
    scale = tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
    if PDL:
        tl.extra.cuda.gdc_wait()
    value = tl.load(x + row * x_stride + column, mask=inside, other=0.0)
    if ADD:
        value = value.to(tl.float32)
        value += tl.load(residual + row * residual_stride + column, mask=inside, other=0.0).to(tl.float32)
        value = value.to(x.dtype.element_ty)
        tl.store(x + row * x_stride + column, value, mask=inside)
    value = value.to(tl.float32)
    normed = value * tl.rsqrt(tl.sum(value * value, axis=0) / HIDDEN + eps)
    normed = normed.to(out.dtype.element_ty).to(tl.float32) * scale
    tl.store(out + row * HIDDEN + column, normed.to(out.dtype.element_ty), mask=inside)


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float, pdl: bool = False) -> torch.Tensor:
    """Return x / sqrt(mean(x^2) + eps) * weight; x is [tokens, hidden] with rows of stride 1."""
    return _launch(x, None, weight, eps, pdl)


def add_rms_norm(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float, pdl: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the norm of x + residual, and the sum; the sum is written into `x`."""
    return _launch(x, residual, weight, eps, pdl), x


def rms_norm_pdl(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """Return `rms_norm`, started before the kernel in front has ended."""
    return rms_norm(x, weight, eps, pdl=True)


def add_rms_norm_pdl(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return `add_rms_norm`, started before the kernel in front has ended."""
    return add_rms_norm(x, residual, weight, eps, pdl=True)


def _launch(
    x: torch.Tensor, residual: torch.Tensor | None, weight: torch.Tensor, eps: float, pdl: bool
) -> torch.Tensor:
    tokens, hidden = x.shape
    out = x.new_empty(tokens, hidden)
    second = x if residual is None else residual
    block = triton.next_power_of_2(hidden)
    if tokens:
        _rms[(tokens,)](
            x,
            second,
            weight,
            out,
            x.stride(0),
            second.stride(0),
            eps,
            HIDDEN=hidden,
            BLOCK=block,
            ADD=residual is not None,
            PDL=pdl,
            num_warps=_warps(block),
            **({"launch_pdl": True} if pdl else {}),
        )
    return out


def _warps(block: int) -> int:
    """Return the warps of a row: a thread takes 8 elements, one or two 16-byte loads."""
    return min(WARPS_MAX, max(1, block // (32 * THREAD_ELEMENTS)))


AOT = tuple(
    Launch(
        _rms,
        f"*{dtype} *{dtype} *{dtype} *{dtype} i32:16 i32:16 fp32",
        {"HIDDEN": hidden, "BLOCK": triton.next_power_of_2(hidden), "ADD": add, "PDL": pdl},
        warps=_warps(triton.next_power_of_2(hidden)),
    )
    for dtype, hidden, add, pdl in (
        ("bf16", 4096, True, True),
        ("bf16", 4096, False, False),
        ("fp32", 576, True, False),
        ("bf16", 16384, True, False),
    )
)
