"""The shape of a model, read from a checkpoint's own description.

Owns the translation of config.json into one vocabulary; that of GGUF metadata is in
`model.config_gguf`. It does not know how a model computes and reads no weights.

Invariant: a `ModelShape` returned can be computed by this package; anything else was refused with
the name of the setting, what it was and what is allowed.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

import msgspec

from tokenspeed.errors import StartError
from tokenspeed.formats.config_json import HfConfig, read_config, rope_number, rope_type, window_of, yarn_stretch
from tokenspeed.formats.gguf import read_gguf
from tokenspeed.formats.location import CONFIG_NAME, weights_path
from tokenspeed.model.config_gguf import shape_of_gguf
from tokenspeed.model.shape import Architecture, ModelShape, RopeShape, check_positive, check_shape, yarn_magnitude

ARCHITECTURES: tuple[Architecture, ...] = get_args(Architecture)
# Where each kind of bias exists: transformers reads the setting for these alone.
ATTENTION_BIAS = ("llama", "qwen3")
MLP_BIAS = ("llama",)


def read_shape(path: str | Path, *, dummy: bool = False, overrides: Mapping[str, Any] | None = None) -> ModelShape:
    """Return the shape of the checkpoint at `path`, which needs no weights if `dummy`; raises `StartError`.

    `overrides` are merged into config.json.
    """
    weights = weights_path(path, dummy=dummy)
    shape = _shape_of_folder(weights, overrides) if weights.is_dir() else shape_of_gguf(read_gguf(weights))
    check_shape(weights, shape)
    return shape


def _shape_of_folder(folder: Path, overrides: Mapping[str, Any] | None) -> ModelShape:
    path, config = folder / CONFIG_NAME, read_config(folder, overrides)
    architecture = next((name for name in ARCHITECTURES if name == config.model_type), None)
    if architecture is None:
        raise StartError(f"{path}: model_type is {config.model_type}; {', '.join(ARCHITECTURES)} are supported here.")
    _refuse(path, config)
    check_positive(path, num_attention_heads=config.num_attention_heads)
    return ModelShape(
        architecture=architecture,
        hidden=config.hidden_size,
        layers=config.num_hidden_layers,
        heads=config.num_attention_heads,
        kv_heads=config.num_key_value_heads or config.num_attention_heads,
        head_dim=config.head_dim or config.hidden_size // config.num_attention_heads,
        intermediate=config.intermediate_size,
        vocab=config.vocab_size,
        norm_eps=config.rms_norm_eps,
        rope=_rope(path, config),
        tied=config.tie_word_embeddings,
        max_position=config.max_position_embeddings,
        window=window_of(config),
        qkv_bias=config.attention_bias or architecture == "qwen2",
        output_bias=config.attention_bias,
        mlp_bias=config.mlp_bias,
    )


def _refuse(path: Path, config: HfConfig) -> None:
    for name, seen, allowed in (
        ("hidden_act", config.hidden_act, "silu"),
        ("attention_bias", config.attention_bias and config.model_type not in ATTENTION_BIAS, False),
        ("mlp_bias", config.mlp_bias and config.model_type not in MLP_BIAS, False),
        ("partial_rotary_factor", config.partial_rotary_factor or 1.0, 1.0),
    ):
        if seen != allowed:
            raise StartError(f"{path}: {name} is {seen}; {allowed} is supported here for {config.model_type}.")


def _rope(path: Path, config: HfConfig) -> RopeShape:
    def number(name: str, default: float | None = None) -> float:
        return rope_number(path, config, name, default)

    rope = RopeShape(theta=10_000.0 if config.rope_theta is None else config.rope_theta)
    longest = config.max_position_embeddings
    match rope_type(config):
        case "default":
            return rope
        case "linear":
            return _with(rope, kind="linear", factor=number("factor"))
        case "dynamic":
            return _with(rope, kind="dynamic", factor=number("factor"), original_max_position=longest)
        case "llama3":
            return _with(
                rope,
                kind="llama3",
                factor=number("factor"),
                low_freq_factor=number("low_freq_factor"),
                high_freq_factor=number("high_freq_factor"),
                original_max_position=int(number("original_max_position_embeddings", longest)),
            )
        case "yarn":
            return _yarn(path, config, rope)
        case kind:
            raise StartError(
                f"{path}: the rope type is {kind}; default, linear, dynamic, llama3 and yarn are supported here."
            )


def _yarn(path: Path, config: HfConfig, rope: RopeShape) -> RopeShape:
    def number(name: str, default: float) -> float:
        return rope_number(path, config, name, default)

    original, factor = yarn_stretch(path, config)
    scale, scale_all = number("mscale", 0.0), number("mscale_all_dim", 0.0)
    magnitude = yarn_magnitude(factor)
    if scale and scale_all:
        magnitude = yarn_magnitude(factor, scale) / yarn_magnitude(factor, scale_all)
    return _with(
        rope,
        kind="yarn",
        factor=factor,
        attention_factor=number("attention_factor", magnitude),
        original_max_position=int(original),
        beta_fast=number("beta_fast", 32.0),
        beta_slow=number("beta_slow", 1.0),
        truncate=(config.rope_parameters or {}).get("truncate", True) is not False,
    )


def _with(rope: RopeShape, **settings: object) -> RopeShape:
    return msgspec.structs.replace(rope, **settings)
