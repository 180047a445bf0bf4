"""The shape of a model, read from a checkpoint's own description.

Owns the translation of config.json and of GGUF metadata into one vocabulary. It does not know how
a model computes and reads no weights, except for the few numbers by which some GGUF files write
their rope scaling.

Invariant: a `ModelShape` returned can be computed by this package; anything else was refused with
the name of the setting, what it was and what is allowed.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, TypeVar, cast

import msgspec
import numpy as np

from tokenspeed.errors import StartError
from tokenspeed.formats.gguf import GgufFile, read_gguf
from tokenspeed.formats.location import weights_path

GGUF_ROPE_FACTORS = "rope_freqs.weight"

T = TypeVar("T")


class RopeShape(msgspec.Struct, frozen=True, kw_only=True):
    """How positions turn into angles.

    "linear" divides every frequency by `factor`; "llama3" divides the slow ones, see
    `model.rope`; "factors" divides frequency i by `factors[i]`, as GGUF files write it.
    """

    theta: float
    kind: Literal["default", "linear", "llama3", "factors"] = "default"
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_max_position: int = 0
    factors: tuple[float, ...] = ()


class ModelShape(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes of a transformer. `tied`: the output head is the embedding."""

    architecture: Literal["llama"]
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


def read_shape(path: str | Path, *, dummy: bool = False) -> ModelShape:
    """Return the shape of the checkpoint at `path`, which needs no weights if `dummy`; raises `StartError`."""
    weights = weights_path(path, dummy=dummy)
    shape = _shape_of_folder(weights) if weights.is_dir() else shape_of_gguf(read_gguf(weights))
    _check(weights, shape)
    return shape


def shape_of_gguf(file: GgufFile) -> ModelShape:
    """Return the shape that the metadata of `file` describes."""
    architecture = file.need("general.architecture", str)
    if architecture != "llama":
        raise StartError(f"{file.path} has the architecture {architecture}; supported here: llama.")
    for key in ("llama.expert_count", "llama.attention.sliding_window"):
        if file.get(key, int):
            raise StartError(f"{file.path}: {key} is {file.get(key, int)}; models without are supported here.")
    heads, hidden = file.need("llama.attention.head_count", int), file.need("llama.embedding_length", int)
    _positive(file.path, heads=heads)
    head_dim = file.get("llama.attention.key_length", int) or hidden // heads
    turned = file.get("llama.rope.dimension_count", int) or head_dim
    if turned != head_dim:
        raise StartError(f"{file.path}: rope turns {turned} of {head_dim} dimensions; only all of them are supported.")
    embedding = file.tensors.get("token_embd.weight")
    return ModelShape(
        architecture="llama",
        hidden=hidden,
        layers=file.need("llama.block_count", int),
        heads=heads,
        kv_heads=file.get("llama.attention.head_count_kv", int) or heads,
        head_dim=head_dim,
        intermediate=file.need("llama.feed_forward_length", int),
        vocab=embedding.shape[0] if embedding is not None else file.need("llama.vocab_size", int),
        norm_eps=file.need("llama.attention.layer_norm_rms_epsilon", float),
        rope=_gguf_rope(file),
        tied="output.weight" not in file.tensors,
        max_position=file.need("llama.context_length", int),
    )


def _gguf_rope(file: GgufFile) -> RopeShape:
    theta = file.get("llama.rope.freq_base", float) or 10_000.0
    if GGUF_ROPE_FACTORS in file.tensors:
        return RopeShape(theta=theta, kind="factors", factors=_rope_factors(file))
    kind = file.get("llama.rope.scaling.type", str) or "none"
    if kind == "linear":
        return RopeShape(theta=theta, kind="linear", factor=file.need("llama.rope.scaling.factor", float))
    if kind != "none":
        raise StartError(f"{file.path} scales rope by {kind}; none and linear are supported here.")
    return RopeShape(theta=theta)


def _rope_factors(file: GgufFile) -> tuple[float, ...]:
    tensor = file.tensors[GGUF_ROPE_FACTORS]
    if tensor.type != "F32":
        raise StartError(f"{file.path} stores {tensor.name} as {tensor.type}; F32 is needed: convert it again.")
    numbers = np.fromfile(tensor.file, dtype="<f4", count=tensor.elements, offset=tensor.offset)
    return tuple(numbers.tolist())


class _HfLlama(msgspec.Struct):
    """The part of config.json that is read here."""

    model_type: str
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    intermediate_size: int
    vocab_size: int
    rms_norm_eps: float
    max_position_embeddings: int
    num_key_value_heads: int | None = None
    head_dim: int | None = None
    tie_word_embeddings: bool = False
    attention_bias: bool = False
    mlp_bias: bool = False
    hidden_act: str = "silu"
    partial_rotary_factor: float = 1.0
    rope_theta: float | None = None
    rope_scaling: dict[str, object] | None = None
    rope_parameters: dict[str, object] | None = None


def _shape_of_folder(folder: Path) -> ModelShape:
    path = folder / "config.json"
    try:
        config = msgspec.json.decode(path.read_bytes(), type=_HfLlama)
    except OSError as error:
        raise StartError(f"{path} cannot be read: {error.strerror}; download it too.") from error
    except msgspec.DecodeError as error:
        raise StartError(f"{path} is no configuration of a Llama model ({error}): download it again.") from error
    for name, seen, allowed in (
        ("model_type", config.model_type, "llama"),
        ("hidden_act", config.hidden_act, "silu"),
        ("attention_bias", config.attention_bias, False),
        ("mlp_bias", config.mlp_bias, False),
        ("partial_rotary_factor", config.partial_rotary_factor, 1.0),
    ):
        if seen != allowed:
            raise StartError(f"{path}: {name} is {seen}; {allowed} is supported here.")
    _positive(path, num_attention_heads=config.num_attention_heads)
    return ModelShape(
        architecture="llama",
        hidden=config.hidden_size,
        layers=config.num_hidden_layers,
        heads=config.num_attention_heads,
        kv_heads=config.num_key_value_heads or config.num_attention_heads,
        head_dim=config.head_dim or config.hidden_size // config.num_attention_heads,
        intermediate=config.intermediate_size,
        vocab=config.vocab_size,
        norm_eps=config.rms_norm_eps,
        rope=_hf_rope(path, config),
        tied=config.tie_word_embeddings,
        max_position=config.max_position_embeddings,
    )


def _hf_rope(path: Path, config: _HfLlama) -> RopeShape:
    """Read both spellings: `rope_parameters`, and the older `rope_theta` with `rope_scaling`."""
    settings = config.rope_parameters or config.rope_scaling or {}
    theta = _number(path, settings, "rope_theta", config.rope_theta or 10_000.0)
    kind = settings.get("rope_type", settings.get("type")) or "default"
    if kind == "default":
        return RopeShape(theta=theta)
    if kind == "linear":
        return RopeShape(theta=theta, kind="linear", factor=_number(path, settings, "factor"))
    if kind == "llama3":
        return RopeShape(
            theta=theta,
            kind="llama3",
            factor=_number(path, settings, "factor"),
            low_freq_factor=_number(path, settings, "low_freq_factor"),
            high_freq_factor=_number(path, settings, "high_freq_factor"),
            original_max_position=int(_number(path, settings, "original_max_position_embeddings")),
        )
    raise StartError(f"{path}: the rope type is {kind}; default, linear and llama3 are supported here.")


def _number(path: Path, settings: Mapping[str, object], name: str, default: float | None = None) -> float:
    value = settings.get(name, default)
    if type(value) not in (int, float):
        raise StartError(f"{path}: the rope setting {name} is {value!r}; a number is needed.")
    return float(cast("float", value))


def _check(path: Path, shape: ModelShape) -> None:
    sizes = ("hidden", "layers", "heads", "kv_heads", "head_dim", "intermediate", "vocab", "max_position")
    _positive(path, **{name: getattr(shape, name) for name in sizes})
    if shape.heads % shape.kv_heads:
        raise StartError(f"{path}: {shape.heads} attention heads do not divide among {shape.kv_heads} KV heads.")
    if shape.head_dim % 2:
        raise StartError(f"{path}: head_dim is {shape.head_dim}; it must be even for rope.")
    if shape.rope.factors and len(shape.rope.factors) != shape.head_dim // 2:
        raise StartError(
            f"{path}: {GGUF_ROPE_FACTORS} has {len(shape.rope.factors)} numbers; "
            f"head_dim {shape.head_dim} needs {shape.head_dim // 2}."
        )


def _positive(path: Path, **values: int) -> None:
    for name, value in values.items():
        if value < 1:
            raise StartError(f"{path}: {name} is {value}; it must be at least 1.")
