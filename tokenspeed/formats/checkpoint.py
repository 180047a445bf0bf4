"""What a checkpoint is, told quickly and without torch.

Owns the look at a path before anything is started: which kind of checkpoint lies there, what the
start banner and the defaults need to know of it, and every refusal that can be made early. It
loads no weights and does not know how a model computes.

Invariant: a `Checkpoint` returned names a supported architecture, and all its weights are present,
unless dummy ones were asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from tokenspeed.errors import StartError
from tokenspeed.formats.gguf import GgufFile, read_gguf
from tokenspeed.formats.location import CONFIG_NAME, weights_path
from tokenspeed.formats.safetensors import read_safetensors
from tokenspeed.formats.tensor import TensorInfo

GGUF_ARCHITECTURES: tuple[Literal["llama", "qwen2", "qwen3"], ...] = ("llama", "qwen2", "qwen3")
GGUF_TYPES = ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1")
HF_ARCHITECTURES = ("LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")
HF_TYPES = ("F32", "F16", "BF16")
LAYERS_MAX = 1024  # none has more: a damaged number must not become as many names of tensors


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """A checkpoint at `path`, which is a folder for safetensors and a file for GGUF.

    `name` comes from the path and serves as the model's name, `title` is what the checkpoint calls
    itself. `max_position` is the longest context in tokens. "" stands for a text that is unknown, and
    dummy weights have no bytes, parameters or types.
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
    vocab_tokens: int
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    license: str = ""
    origin: str = ""

    @property
    def kv_elements_per_token(self) -> int:
        """Numbers that the KV cache holds for one token, keys and values of all layers."""
        return 2 * self.layers * self.kv_heads * self.head_dim


def describe(path: str | Path, *, dummy: bool = False) -> Checkpoint:
    """Return what is known of the checkpoint at `path`; with `dummy`, a folder's weights are not looked at.

    Raises `StartError`, which says what was seen and what to do, if it cannot be served.
    """
    weights = weights_path(path, dummy=dummy)
    return _describe_folder(weights, dummy) if weights.is_dir() else _describe_gguf(read_gguf(weights))


def _describe_gguf(file: GgufFile) -> Checkpoint:
    _refuse_gguf(file)
    architecture = file.need("general.architecture", str)
    _check_architecture(file.path, [architecture], GGUF_ARCHITECTURES)

    def need(key: str) -> int:
        return file.need(f"{architecture}.{key}", int)

    heads, hidden = need("attention.head_count"), need("embedding_length")
    _check_positive(file.path, heads=heads, hidden=hidden)
    weights = _weights(file.path, file.tensors.values(), GGUF_TYPES)
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
            max_position=need("context_length"),
            vocab_tokens=len(file.strings("tokenizer.ggml.tokens")) or need("vocab_size"),
            layers=need("block_count"),
            hidden=hidden,
            heads=heads,
            kv_heads=file.get(f"{architecture}.attention.head_count_kv", int) or heads,
            head_dim=file.get(f"{architecture}.attention.key_length", int) or hidden // heads,
            license=file.get("general.license", str) or "",
            origin=_origin(file),
        )
    )


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


class _HfConfig(msgspec.Struct):
    """The part of config.json that is read here."""

    num_hidden_layers: int
    hidden_size: int
    num_attention_heads: int
    vocab_size: int
    max_position_embeddings: int
    architectures: list[str] | None = None
    num_key_value_heads: int | None = None
    head_dim: int | None = None
    quantization_config: dict[str, object] | None = None


class _HfKind(msgspec.Struct):
    architectures: list[str] | None = None


def _describe_folder(folder: Path, dummy: bool) -> Checkpoint:
    config = _hf_config(folder)
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
            max_position=config.max_position_embeddings,
            vocab_tokens=config.vocab_size,
            layers=config.num_hidden_layers,
            hidden=config.hidden_size,
            heads=config.num_attention_heads,
            kv_heads=config.num_key_value_heads or config.num_attention_heads,
            head_dim=config.head_dim or config.hidden_size // config.num_attention_heads,
        )
    )


def _hf_config(folder: Path) -> _HfConfig:
    path = folder / CONFIG_NAME
    try:
        raw = path.read_bytes()
        _check_architecture(folder, msgspec.json.decode(raw, type=_HfKind).architectures or [], HF_ARCHITECTURES)
        config = msgspec.json.decode(raw, type=_HfConfig)
    except FileNotFoundError as error:
        raise StartError(f"{folder} has .safetensors files but no config.json: download it too.") from error
    except OSError as error:
        raise StartError(f"{path} cannot be read: {error.strerror}.") from error
    except msgspec.DecodeError as error:
        raise StartError(f"{path} is no model configuration ({error}): download it again.") from error
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
    for tensor in tensors:
        if tensor.type not in allowed:
            raise StartError(
                f"{path} stores {tensor.name} as {tensor.type}; {', '.join(allowed)} can be read: give a file of those."
            )
    return _Weights(
        sum(tensor.bytes for tensor in tensors),
        sum(tensor.elements for tensor in tensors),
        tuple(sorted({tensor.type for tensor in tensors})),
    )


def _check_architecture(path: Path, names: list[str], allowed: Sequence[str]) -> None:
    if not any(name in allowed for name in names):
        seen = ", ".join(names) or "unnamed"
        raise StartError(f"{path} has the architecture {seen}; supported here: {', '.join(allowed)}.")


def _check_positive(path: Path, **values: int) -> None:
    for name, value in values.items():
        if value < 1:
            raise StartError(f"{path}: {name} is {value}; it must be at least 1: download it again.")


def _checked(found: Checkpoint) -> Checkpoint:
    names = ("max_position", "vocab_tokens", "layers", "hidden", "heads", "kv_heads", "head_dim")
    _check_positive(found.path, **{name: getattr(found, name) for name in names})
    if found.layers > LAYERS_MAX:
        raise StartError(
            f"{found.path}: layers is {found.layers}; at most {LAYERS_MAX} are allowed: download it again."
        )
    return found
