"""The shape of a model: sizes, rope and what else a class of this package needs to be declared.

Owns the vocabulary, and the checks that hold whatever description a shape was read from. It does not
know the files that it comes from: see `model.config` and `model.config_gguf`.

Invariant: a shape that passed `check_shape` can be computed by this package.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Literal

import msgspec

from tokenspeed.errors import StartError

Architecture = Literal["llama", "mistral", "qwen2", "qwen3"]


class RopeShape(msgspec.Struct, frozen=True, kw_only=True):
    """How positions turn into angles; formulas are in `model.rope`.

    "linear" divides every frequency by `factor`; "dynamic" raises theta as far as the longest
    position asks for; "llama3" and "yarn" divide the slow ones; "factors" divides frequency i by
    `factors[i]`, as GGUF files write it. `attention_factor` multiplies cosine and sine.
    """

    theta: float
    kind: Literal["default", "linear", "dynamic", "llama3", "yarn", "factors"] = "default"
    factor: float = 1.0
    attention_factor: float = 1.0
    original_max_position: int = 0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True
    factors: tuple[float, ...] = ()


class ModelShape(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes of a transformer. `tied`: the output head is the embedding.

    `window`, unless 0, is how many tokens back (itself included) some layer's token may look.
    `qkv_bias` and `output_bias` are those of the attention's projections, `mlp_bias` of all three of the MLP's.
    """

    architecture: Architecture
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    norm_eps: float
    rope: RopeShape
    tied: bool
    max_position: int
    window: int = 0
    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False


def yarn_magnitude(factor: float, scale: float = 1.0) -> float:
    """Return by how much cosine and sine grow with a context `factor` times as long (YaRN, section 3.4)."""
    return 0.1 * scale * math.log(factor) + 1.0 if factor > 1.0 else 1.0


def check_shape(path: Path, shape: ModelShape) -> None:
    """Raise `StartError` for sizes that cannot be computed; `path` names the checkpoint."""
    sizes = ("hidden", "layers", "heads", "kv_heads", "head_dim", "intermediate", "vocab", "max_position")
    check_positive(path, **{name: getattr(shape, name) for name in sizes})
    if shape.heads % shape.kv_heads:
        raise StartError(f"{path}: {shape.heads} attention heads do not divide among {shape.kv_heads} KV heads.")
    if shape.head_dim % 2:
        raise StartError(f"{path}: head_dim is {shape.head_dim}; it must be even for rope.")
    if shape.window < 0:
        raise StartError(f"{path}: sliding_window is {shape.window}; it must be at least 0.")
    _check_rope(path, shape.rope, shape.head_dim)


def check_window(path: str, shape: ModelShape, max_model_len: int) -> None:
    """Raise `StartError` if some token of a sequence of `max_model_len` may not see all before it."""
    if 0 < shape.window < max_model_len:
        raise StartError(
            f"{path}: sliding_window is {shape.window}, and max_model_len is {max_model_len}; attention over a window "
            f"is not computed here: lower max_model_len to {shape.window}, where the window hides nothing."
        )


def check_positive(path: Path, **values: float) -> None:
    """Raise `StartError` that names the first of `values` below 1."""
    for name, value in values.items():
        if not value >= 1:
            raise StartError(f"{path}: {name} is {value}; it must be at least 1.")


def _check_rope(path: Path, rope: RopeShape, head_dim: int) -> None:
    if not 1.0 < rope.theta < math.inf:
        raise StartError(f"{path}: rope_theta is {rope.theta}; it must be above 1.")
    if rope.kind in ("linear", "dynamic", "llama3", "yarn"):
        check_positive(path, **{"the rope setting factor": rope.factor})
    if rope.kind in ("dynamic", "llama3", "yarn"):
        check_positive(path, original_max_position_embeddings=rope.original_max_position)
    if rope.kind == "dynamic" and head_dim == 2:
        raise StartError(f"{path}: head_dim is 2; dynamic rope needs at least 4.")
    if rope.kind == "llama3" and not 0 < rope.low_freq_factor < rope.high_freq_factor:
        raise StartError(
            f"{path}: the rope settings low_freq_factor and high_freq_factor are {rope.low_freq_factor} and "
            f"{rope.high_freq_factor}; the first must be above 0 and below the second."
        )
    if rope.kind == "yarn" and not 0 < rope.beta_slow <= rope.beta_fast:
        raise StartError(
            f"{path}: the rope settings beta_slow and beta_fast are {rope.beta_slow} and {rope.beta_fast}; "
            "the first must be above 0 and at most the second."
        )
    if rope.factors and len(rope.factors) != head_dim // 2:
        raise StartError(
            f"{path}: rope_freqs.weight has {len(rope.factors)} numbers; head_dim {head_dim} needs {head_dim // 2}."
        )
