"""The shape of a model, read from a checkpoint's own description.

Owns the translation of config.json into one vocabulary; that of GGUF metadata is in
`model.config_gguf`. It does not know how a model computes and reads no weights.

Invariant: a `ModelShape` returned can be computed by this package; anything else was refused with
the name of the setting, what it was and what is allowed.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import get_args

import msgspec

from tokenspeed.errors import StartError
from tokenspeed.formats.gguf import read_gguf
from tokenspeed.formats.location import weights_path
from tokenspeed.model.config_gguf import shape_of_gguf
from tokenspeed.model.shape import Architecture, ModelShape, RopeShape, check_positive, check_shape, yarn_magnitude

ARCHITECTURES: tuple[Architecture, ...] = get_args(Architecture)
WINDOW = 4096  # of a config.json that does not tell it, as transformers has it


class _HfConfig(msgspec.Struct):
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
    partial_rotary_factor: float | None = None
    rope_theta: float | None = None
    rope_scaling: dict[str, object] | None = None
    rope_parameters: dict[str, object] | None = None
    sliding_window: int | None = WINDOW
    use_sliding_window: bool = False
    max_window_layers: int = 28
    layer_types: list[str] | None = None


def read_shape(path: str | Path, *, dummy: bool = False) -> ModelShape:
    """Return the shape of the checkpoint at `path`, which needs no weights if `dummy`; raises `StartError`."""
    weights = weights_path(path, dummy=dummy)
    shape = _shape_of_folder(weights) if weights.is_dir() else shape_of_gguf(read_gguf(weights))
    check_shape(weights, shape)
    return shape


def _shape_of_folder(folder: Path) -> ModelShape:
    path = folder / "config.json"
    try:
        config = msgspec.json.decode(path.read_bytes(), type=_HfConfig)
    except OSError as error:
        raise StartError(f"{path} cannot be read: {error.strerror}; download it too.") from error
    except msgspec.DecodeError as error:
        raise StartError(f"{path} is no configuration of a model ({error}): download it again.") from error
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
        window=_window(config),
    )


def _refuse(path: Path, config: _HfConfig) -> None:
    rope = config.rope_parameters or config.rope_scaling or {}
    for name, seen, allowed in (
        ("hidden_act", config.hidden_act, "silu"),
        ("attention_bias", config.attention_bias, False),
        ("mlp_bias", config.mlp_bias, False),
        ("partial_rotary_factor", rope.get("partial_rotary_factor", config.partial_rotary_factor) or 1.0, 1.0),
    ):
        if seen != allowed:
            raise StartError(f"{path}: {name} is {seen}; {allowed} is supported here.")


def _window(config: _HfConfig) -> int:
    """Return the sliding window of those layers that have one, or 0.

    All layers of a Mistral have it, which older files do not spell out. A Qwen has it if told to, and
    then in the layers that `layer_types` names, or in those from max_window_layers on.
    """
    if config.model_type == "llama":
        return 0
    if config.model_type != "mistral":
        behind = config.max_window_layers < config.num_hidden_layers
        some = behind if config.layer_types is None else "sliding_attention" in config.layer_types
        if not (config.use_sliding_window and some):
            return 0
    return config.sliding_window or 0


def _rope(path: Path, config: _HfConfig) -> RopeShape:
    """Read both spellings: `rope_parameters`, and the older `rope_theta` with `rope_scaling`."""
    settings = config.rope_parameters or config.rope_scaling or {}
    number = _Numbers(path, settings)
    kind = settings.get("rope_type", settings.get("type")) or "default"
    rope = RopeShape(theta=number("rope_theta", config.rope_theta or 10_000.0))
    longest = config.max_position_embeddings
    match kind:
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
            return _yarn(rope, number, longest)
    raise StartError(f"{path}: the rope type is {kind}; default, linear, dynamic, llama3 and yarn are supported here.")


def _yarn(rope: RopeShape, number: _Numbers, longest: int) -> RopeShape:
    original = int(number("original_max_position_embeddings", longest))
    factor = number("factor", longest / original if original > 0 else None)
    scale, scale_all = number("mscale", 0.0), number("mscale_all_dim", 0.0)
    magnitude = yarn_magnitude(factor)
    if scale and scale_all:
        magnitude = yarn_magnitude(factor, scale) / yarn_magnitude(factor, scale_all)
    return _with(
        rope,
        kind="yarn",
        factor=factor,
        attention_factor=number("attention_factor", magnitude),
        original_max_position=original,
        beta_fast=number("beta_fast", 32.0),
        beta_slow=number("beta_slow", 1.0),
        truncate=number.settings.get("truncate", True) is not False,
    )


def _with(rope: RopeShape, **settings: object) -> RopeShape:
    return msgspec.structs.replace(rope, **settings)


class _Numbers:
    """The numbers among rope settings; null counts as absent."""

    def __init__(self, path: Path, settings: Mapping[str, object]) -> None:
        self.settings = settings
        self._path = path

    def __call__(self, name: str, default: float | None = None) -> float:
        value = self.settings.get(name)
        value = default if value is None else value
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise StartError(f"{self._path}: the rope setting {name} is {value!r}; a number is needed.")
        return float(value)
