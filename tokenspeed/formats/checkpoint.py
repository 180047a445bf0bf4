"""What a checkpoint is, told quickly and without torch.

Owns the look at a path before anything is started: which kind of checkpoint lies there, what the
start banner and the defaults need to know of it, and every refusal that can be made early. It
loads no weights and does not know how a model computes.

Invariant: a `Checkpoint` returned names a supported architecture, and all its weights are present,
unless dummy ones were asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from tokenspeed.errors import StartError
from tokenspeed.formats.config_json import (
    HF_ARCHITECTURES,
    Context,
    HfConfig,
    check_architecture,
    context_of,
    read_config,
    stretched,
    window_of,
)
from tokenspeed.formats.gguf import GgufFile, read_gguf
from tokenspeed.formats.location import weights_path
from tokenspeed.formats.safetensors import read_safetensors
from tokenspeed.formats.tensor import TensorInfo

GGUF_ARCHITECTURES: tuple[Literal["llama", "qwen2", "qwen3"], ...] = ("llama", "qwen2", "qwen3")
GGUF_FLOATS = ("F32", "F16", "BF16")
# In which matrices may be stored: all that the gguf package turns into numbers.
GGUF_TYPES = (
    *GGUF_FLOATS,
    *("Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"),
    *("Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"),
    *("IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ4_NL", "IQ4_XS"),
    *("TQ1_0", "TQ2_0", "MXFP4"),
)
HF_TYPES = ("F32", "F16", "BF16")
LAYERS_MAX = 1024  # none has more: a damaged number must not become as many names of tensors


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """A checkpoint at `path`, which is a folder for safetensors and a file for GGUF.

    `name` comes from the path and serves as the model's name, `title` is what the checkpoint calls
    itself. `max_position` is the longest context in tokens, with rope stretched as the checkpoint says, and
    `context_default` the one that is served unless told otherwise. `window`, unless 0, is how far some
    layer looks back; no context is longer. "" stands for a text that is unknown, and dummy weights have
    no bytes, parameters or types.
    """

    kind: Literal["gguf", "safetensors"]
    path: Path
    architecture: str
    name: str
    title: str
    weights_bytes: int
    parameters: int
    types: tuple[str, ...]
    max_position: int
    context_default: int
    window: int
    vocab_tokens: int
    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    license: str = ""
    origin: str = ""

    @property
    def kv_elements_per_token(self) -> int:
        """Numbers that the KV cache holds for one token, keys and values of all layers."""
        return 2 * self.layers * self.kv_heads * self.head_dim


def describe(path: str | Path, *, dummy: bool = False, overrides: Mapping[str, Any] | None = None) -> Checkpoint:
    """Return what is known of the checkpoint at `path`; with `dummy`, a folder's weights are not looked at.

    `overrides` are merged into config.json, which a GGUF file does not have. Raises `StartError`,
    which says what was seen and what to do, if it cannot be served.
    """
    weights = weights_path(path, dummy=dummy)
    if weights.is_dir():
        return _describe_folder(weights, dummy, overrides)
    if overrides:
        raise StartError(f"{weights} has no config.json, so hf_overrides cannot change it: leave them out.")
    return _describe_gguf(read_gguf(weights))


def _describe_gguf(file: GgufFile) -> Checkpoint:
    _refuse_gguf(file)
    architecture = file.need("general.architecture", str)
    check_architecture(file.path, [architecture], GGUF_ARCHITECTURES)

    def need(key: str) -> int:
        return file.need(f"{architecture}.{key}", int)

    heads, hidden = need("attention.head_count"), need("embedding_length")
    _check_positive(file.path, heads=heads, hidden=hidden)
    weights = _weights(file.path, file.tensors.values(), GGUF_TYPES)
    context = _gguf_context(file, architecture)
    return _checked(
        Checkpoint(
            kind="gguf",
            path=file.path,
            architecture=architecture,
            name=file.path.stem,
            title=file.get("general.name", str) or "",
            weights_bytes=weights.bytes,
            parameters=weights.parameters,
            types=weights.types,
            max_position=context.longest,
            context_default=context.default,
            window=gguf_window(file, architecture),
            vocab_tokens=len(file.strings("tokenizer.ggml.tokens")) or need("vocab_size"),
            layers=need("block_count"),
            hidden=hidden,
            intermediate=need("feed_forward_length"),
            heads=heads,
            kv_heads=file.get(f"{architecture}.attention.head_count_kv", int) or heads,
            head_dim=file.get(f"{architecture}.attention.key_length", int) or hidden // heads,
            license=file.get("general.license", str) or "",
            origin=_origin(file),
        )
    )


def gguf_window(file: GgufFile, architecture: str) -> int:
    """Return how many tokens back a layer looks, 0 for all."""
    return file.get(f"{architecture}.attention.sliding_window", int) or 0


def _gguf_context(file: GgufFile, architecture: str) -> Context:
    plain, rope = file.need(f"{architecture}.context_length", int), f"{architecture}.rope.scaling"
    kind, factor = file.get(f"{rope}.type", str) or "none", file.get(f"{rope}.factor", float) or 1.0
    longest = float(plain)
    if kind == "yarn":
        longest = max(longest, factor * (file.get(f"{rope}.original_context_length", int) or 0))
    elif kind == "linear":
        longest *= max(1.0, factor)
    return stretched(plain, longest, gguf_window(file, architecture), kind)


def _refuse_gguf(file: GgufFile) -> None:
    parts = file.get("split.count", int) or 1
    if parts > 1:
        raise StartError(
            f"{file.path} is one of {parts} parts; join them: `llama-gguf-split --merge {file.path} WHOLE.gguf`."
        )
    kind = file.get("general.type", str) or "model"
    if kind != "model":
        raise StartError(f"{file.path} is of type {kind}; give the model's .gguf file.")


def _origin(file: GgufFile) -> str:
    keys = ("general.source.url", "general.repo_url", "general.base_model.0.repo_url", "general.organization")
    return next((text for key in keys if (text := file.get(key, str))), "")


def _describe_folder(folder: Path, dummy: bool, overrides: Mapping[str, Any] | None) -> Checkpoint:
    config = _hf_config(folder, overrides)
    context = context_of(folder, config)
    _check_positive(folder, heads=config.num_attention_heads)
    weights = _Weights(0, 0, ()) if dummy else _weights(folder, read_safetensors(folder).values(), HF_TYPES)
    return _checked(
        Checkpoint(
            kind="safetensors",
            path=folder,
            architecture=(config.architectures or [""])[0],
            name=folder.resolve().name,
            title="",
            weights_bytes=weights.bytes,
            parameters=weights.parameters,
            types=weights.types,
            max_position=context.longest,
            context_default=context.default,
            window=window_of(config),
            vocab_tokens=config.vocab_size,
            layers=config.num_hidden_layers,
            hidden=config.hidden_size,
            intermediate=config.intermediate_size,
            heads=config.num_attention_heads,
            kv_heads=config.num_key_value_heads or config.num_attention_heads,
            head_dim=config.head_dim or config.hidden_size // config.num_attention_heads,
        )
    )


def _hf_config(folder: Path, overrides: Mapping[str, Any] | None) -> HfConfig:
    config = read_config(folder, overrides)
    check_architecture(folder, config.architectures or [], HF_ARCHITECTURES)
    if config.quantization_config is not None:
        method = config.quantization_config.get("quant_method", "unknown")
        raise StartError(f"{folder} is quantised by {method}; give the unquantised folder or a .gguf file.")
    return config


class _Weights(NamedTuple):
    bytes: int
    parameters: int
    types: tuple[str, ...]


def _weights(path: Path, tensors: Iterable[TensorInfo], allowed: tuple[str, ...]) -> _Weights:
    tensors = list(tensors)
    if not tensors:
        raise StartError(f"{path} holds no tensors: download it again.")
    check_types(path, tensors, allowed)
    return _Weights(
        sum(tensor.bytes for tensor in tensors),
        sum(tensor.elements for tensor in tensors),
        tuple(sorted({tensor.type for tensor in tensors})),
    )


def check_types(path: Path, tensors: Iterable[TensorInfo], allowed: tuple[str, ...]) -> None:
    """Raise `StartError` for a tensor whose type is not among `allowed`, or a vector that is stored in blocks."""
    for tensor in tensors:
        # Blocks lie along a row, and rows are what is read.
        types = allowed if len(tensor.shape) > 1 or allowed is not GGUF_TYPES else GGUF_FLOATS
        if tensor.type not in types:
            what = "" if types is allowed else " for vectors"
            raise StartError(
                f"{path} stores {tensor.name} as {tensor.type}; {', '.join(types)} can be read{what}: "
                "give a file of those."
            )


def _check_positive(path: Path, **values: int) -> None:
    for name, value in values.items():
        if value < 1:
            raise StartError(f"{path}: {name} is {value}; it must be at least 1: download it again.")


def _checked(found: Checkpoint) -> Checkpoint:
    names = ("max_position", "vocab_tokens", "layers", "hidden", "intermediate", "heads", "kv_heads", "head_dim")
    _check_positive(found.path, **{name: getattr(found, name) for name in names})
    if found.layers > LAYERS_MAX:
        raise StartError(
            f"{found.path}: layers is {found.layers}; at most {LAYERS_MAX} are allowed: download it again."
        )
    return found
