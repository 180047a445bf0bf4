"""config.json of a safetensors folder, in one vocabulary.

Owns the reading, the caller's changes to it (`--hf-overrides`), the generations of spelling for rope,
and what follows for the context: how long it may be and how far a token looks back. How a model
computes with these numbers is not known here.

Invariant: whatever a caller changes is a setting that is read; an unknown name is refused.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from tokenspeed.errors import StartError
from tokenspeed.formats.location import CONFIG_NAME

HF_ARCHITECTURES = ("LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")
WINDOW = 4096  # of a config.json that does not tell it, as transformers has it
_ROPE = ("rope_scaling", "rope_parameters")  # the older name first
_BESIDE_ROPE = ("rope_theta", "partial_rotary_factor")  # newer files keep them among the rope settings


class HfConfig(msgspec.Struct, kw_only=True):
    """The part of config.json that is read. `rope_parameters` has `rope_type`, and rope_theta stands beside it."""

    model_type: str
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    intermediate_size: int
    vocab_size: int
    rms_norm_eps: float
    max_position_embeddings: int
    architectures: list[str] | None = None
    num_key_value_heads: int | None = None
    head_dim: int | None = None
    tie_word_embeddings: bool = False
    attention_bias: bool = False
    mlp_bias: bool = False
    hidden_act: str = "silu"
    partial_rotary_factor: float | None = None
    rope_theta: float | None = None
    rope_parameters: dict[str, Any] | None = None
    sliding_window: int | None = WINDOW
    use_sliding_window: bool = False
    max_window_layers: int = 28
    layer_types: list[str] | None = None
    quantization_config: dict[str, Any] | None = None
    eos_token_id: Any = None


class Context(NamedTuple):
    """Lengths in tokens: the longest that can be asked for, and the one served unless told otherwise."""

    longest: int
    default: int


def read_config(folder: Path, overrides: Mapping[str, Any] | None = None) -> HfConfig:
    """Return config.json in `folder` with `overrides` merged into it; raises `StartError`."""
    config = read_object(folder, overrides)
    names = config.get("architectures")
    if isinstance(names, list):
        check_architecture(folder, [str(name) for name in names], HF_ARCHITECTURES)
    try:
        return msgspec.convert(config, HfConfig)
    except msgspec.ValidationError as error:
        cause = "mend the overrides" if overrides else "download it again"
        raise StartError(f"{folder / CONFIG_NAME} is no model configuration ({error}): {cause}.") from error


def read_object(folder: Path, overrides: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return config.json in `folder` as it stands but for the spelling of rope, `overrides` merged into it."""
    path = folder / CONFIG_NAME
    try:
        config = msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except FileNotFoundError as error:
        raise StartError(f"{folder} has .safetensors files but no config.json: download it too.") from error
    except OSError as error:
        raise StartError(f"{path} cannot be read: {error.strerror}.") from error
    except msgspec.DecodeError as error:
        raise StartError(f"{path} is no model configuration ({error}): download it again.") from error
    return _merged(_one_spelling(config), _one_spelling(_known(overrides or {})))


def check_architecture(path: Path, names: list[str], allowed: tuple[str, ...]) -> None:
    """Raise `StartError` unless one of `names` is allowed."""
    if not any(name in allowed for name in names):
        seen = ", ".join(names) or "unnamed"
        raise StartError(f"{path} has the architecture {seen}; supported here: {', '.join(allowed)}.")


def _known(overrides: Mapping[str, Any]) -> dict[str, Any]:
    known = {*HfConfig.__struct_fields__, *_ROPE}
    for name in overrides:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f" (did you mean {near[0]}?)" if near else ""
            raise StartError(
                f"hf_overrides has {name!r}{hint}, which is not read here and would change nothing; "
                f"{', '.join(sorted(known))} are."
            )
    return dict(overrides)


def _one_spelling(config: dict[str, Any]) -> dict[str, Any]:
    """Return `config` with all rope settings where the newest files have them, but for rope_theta."""
    given = [config.pop(name) for name in _ROPE if name in config]
    if not given:
        return config
    settings = next((value for value in reversed(given) if value), None)
    if isinstance(settings, dict):
        settings = {name: value for name, value in settings.items() if value is not None}
        config |= {name: settings.pop(name) for name in _BESIDE_ROPE if name in settings}
        older = settings.pop("type", None)
        if older is not None:
            settings.setdefault("rope_type", older)
    return {**config, "rope_parameters": settings or None}


def _merged(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    both = {name: (base.get(name), value) for name, value in changes.items()}
    return base | {
        name: _merged(old, new) if isinstance(old, dict) and isinstance(new, dict) else new
        for name, (old, new) in both.items()
    }


def rope_number(path: Path, config: HfConfig, name: str, default: float | None = None) -> float:
    """Return the rope setting `name`; null counts as absent. Raises `StartError` if it is no number."""
    value = (config.rope_parameters or {}).get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise StartError(f"{path}: the rope setting {name} is {value!r}; a number is needed.")
    return float(value)


def rope_type(config: HfConfig) -> str:
    """Return the name of the rope's kind."""
    return str((config.rope_parameters or {}).get("rope_type", "default"))


def window_of(config: HfConfig) -> int:
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


def context_of(path: Path, config: HfConfig) -> Context:
    """Return how long a context may be.

    Rope that was stretched by a factor reaches that many times as far: yarn from the original length,
    linear and dynamic rope from max_position_embeddings. Dynamic rope leaves a model as it was
    trained up to there, and changes all of it beyond: that has to be asked for.
    """
    plain = config.max_position_embeddings
    longest = float(plain)
    match rope_type(config):
        case "yarn":
            original, factor = yarn_stretch(path, config)
            longest = max(longest, original * factor)
        case "linear" | "dynamic":
            longest *= max(1.0, rope_number(path, config, "factor"))
    return stretched(plain, longest, window_of(config), rope_type(config))


def stretched(plain: int, longest: float, window: int, kind: str) -> Context:
    """Return the context of a model trained for `plain` tokens whose rope of `kind` reaches `longest`.

    A window hides nothing from a context that is no longer, which is what is computed here.
    """
    whole = min(int(longest), window) if window > 0 else int(longest)
    return Context(whole, min(whole, plain) if kind == "dynamic" else whole)


def yarn_stretch(path: Path, config: HfConfig) -> tuple[float, float]:
    """Return the original length and the factor of yarn rope, either of which a file may leave out."""
    longest = config.max_position_embeddings
    original = rope_number(path, config, "original_max_position_embeddings", longest)
    return original, rope_number(path, config, "factor", longest / original if original > 0 else None)
