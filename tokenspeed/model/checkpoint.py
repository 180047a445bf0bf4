"""Tensors of a checkpoint by their Hugging Face names, read from memory-mapped files.

Owns the maps and the translation to numbers: GGUF's names, its block formats, and the order in
which it keeps the rows of query and key projections. What a model does with a tensor is not known
here.

Invariant: two checkpoints of the same numbers, one safetensors and one GGUF, read equal.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol, cast

import numpy as np
import torch
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, quants

from tokenspeed.formats.checkpoint import GGUF_TYPES, check_types
from tokenspeed.formats.gguf import GgufFile, read_gguf
from tokenspeed.formats.location import weights_path
from tokenspeed.formats.safetensors import read_safetensors
from tokenspeed.formats.tensor import TensorInfo
from tokenspeed.model.config_gguf import GGUF_ROPE_FACTORS, gguf_architecture
from tokenspeed.model.quants import FORMS, ROUNDED, Form, Quants, read_blocks, round_rows

Bytes = np.typing.NDArray[np.uint8]

SAFETENSORS_DTYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
GROUP_ELEMENTS = 256 << 10
# Whose rows llama.cpp keeps in another order within each head: where it turns neighbours, not halves.
TURNED: dict[str, tuple[str, ...]] = {
    "llama": tuple(f"self_attn.{name}_proj.{part}" for name in "qk" for part in ("weight", "bias")),
    "qwen2": (),
    "qwen3": (),
}

_GGUF_NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
_GGUF_LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


class CheckpointTensors(Protocol):
    """The weights of one checkpoint."""

    @property
    def path(self) -> Path:
        """Where it lies."""
        ...

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """The shape of every tensor, by name."""
        ...

    def spelled(self, name: str) -> str:
        """Return how the checkpoint itself spells `name`."""
        ...

    def row_step(self, name: str) -> int:
        """Return of what number the bounds of a read of `name` must be multiples."""
        ...

    def read(self, name: str, first: int, last: int) -> torch.Tensor:
        """Return rows [first, last) of the tensor `name`, in whatever float type it is stored."""
        ...

    def form(self, name: str) -> Form:
        """Return how the matrix `name` is kept as whole numbers."""
        ...

    def quants(self, name: str, first: int, last: int) -> Quants:
        """Return rows [first, last) of the matrix `name` as whole numbers in that form."""
        ...


def open_checkpoint(path: str | Path, head_dim: int) -> CheckpointTensors:
    """Open the safetensors folder or GGUF file at `path`; raises `StartError`."""
    weights = weights_path(path)
    if weights.is_dir():
        return SafetensorsTensors(weights, read_safetensors(weights))
    return GgufTensors(read_gguf(weights), head_dim)


class SafetensorsTensors:
    """A folder of safetensors files."""

    def __init__(self, path: Path, tensors: Mapping[str, TensorInfo]) -> None:
        """Check the types and map the files."""
        check_types(path, tensors.values(), tuple(SAFETENSORS_DTYPES))
        self.path = path
        # Some checkpoints carry tables that can be computed.
        self._tensors = {name: info for name, info in tensors.items() if not name.endswith("rotary_emb.inv_freq")}
        self._maps = _map_files(self._tensors)
        self.shapes = {name: info.shape for name, info in self._tensors.items()}

    def spelled(self, name: str) -> str:
        """Return `name`: these are its own names."""
        return name

    def row_step(self, name: str) -> int:
        """Return 1: any rows can be read."""
        return 1

    def read(self, name: str, first: int, last: int) -> torch.Tensor:
        """Return rows [first, last)."""
        info = self._tensors[name]
        rows = torch.from_numpy(_rows(self._maps, info, first, last)).view(SAFETENSORS_DTYPES[info.type])
        return rows.view(last - first, *info.shape[1:])

    def form(self, name: str) -> Form:
        """Return the form of rounded numbers."""
        return ROUNDED

    def quants(self, name: str, first: int, last: int) -> Quants:
        """Return rows [first, last), rounded."""
        return round_rows(self.read(name, first, last))


class GgufTensors:
    """A GGUF file."""

    def __init__(self, file: GgufFile, head_dim: int) -> None:
        """Check the types and map the file; `head_dim` tells how rows of queries and keys may be kept."""
        check_types(file.path, file.tensors.values(), GGUF_TYPES)
        self.path = file.path
        self._head_dim = head_dim
        self._turned = TURNED[gguf_architecture(file)]
        self._tensors = {_hf_name(name): info for name, info in file.tensors.items() if name != GGUF_ROPE_FACTORS}
        self._maps = _map_files(self._tensors)
        self.shapes = {name: info.shape for name, info in self._tensors.items()}

    def spelled(self, name: str) -> str:
        """Return the GGUF name of `name`."""
        return self._tensors[name].name if name in self._tensors else _gguf_name(name)

    def row_step(self, name: str) -> int:
        """Return head_dim for projections whose rows are kept in another order within each head."""
        return self._head_dim if name.endswith(self._turned) else 1

    def packed(self, name: str, first: int, last: int) -> tuple[str, Bytes]:
        """Return the storage type of `name` and its rows [first, last) as they lie in the file, mapped, [rows, bytes].

        Their order is the file's own: see `row_step`.
        """
        info = self._tensors[name]
        return info.type, _rows(self._maps, info, first, last).reshape(last - first, -1)

    def read(self, name: str, first: int, last: int) -> torch.Tensor:
        """Return rows [first, last), dequantised, in the order of the safetensors checkpoint."""
        kind, blocks = self.packed(name, first, last)
        rows = torch.from_numpy(_dequantise(blocks.reshape(-1), kind)).view(last - first, *self.shapes[name][1:])
        return _halves_apart(rows, self._head_dim) if name.endswith(self._turned) else rows

    def form(self, name: str) -> Form:
        """Return the form that holds the blocks as they are, where there is one."""
        return FORMS.get(self._tensors[name].type, ROUNDED)

    def quants(self, name: str, first: int, last: int) -> Quants:
        """Return rows [first, last): of the blocks as they are, or rounded."""
        kind, blocks = self.packed(name, first, last)
        if kind not in FORMS:
            return round_rows(self.read(name, first, last))
        rows = read_blocks(blocks, kind, last - first)
        if not name.endswith(self._turned):
            return rows
        low = None if rows.low is None else _halves_apart(rows.low, self._head_dim)
        return Quants(_halves_apart(rows.q, self._head_dim), _halves_apart(rows.scale, self._head_dim), low)


def _halves_apart(rows: torch.Tensor, head_dim: int) -> torch.Tensor:
    """Undo llama.cpp's order: it keeps rope's partners i and i + head_dim / 2 side by side."""
    return rows.view(-1, head_dim // 2, 2, *rows.shape[1:]).transpose(1, 2).reshape(rows.shape)


def _dequantise(packed: Bytes, kind: str) -> np.typing.NDArray[np.float32]:
    """Return the numbers of `packed`, whole blocks one after the other.

    The library works on groups of 16 rows: rows are cut so that a group fills the cache and not
    much more, whatever rows the tensor has.
    """
    block, block_bytes = GGML_QUANT_SIZES[GGMLQuantizationType[kind]]
    blocks = len(packed) // block_bytes
    rows = next(rows for rows in range(max(1, 16 * blocks * block // GROUP_ELEMENTS), 0, -1) if blocks % rows == 0)
    numbers = quants.dequantize(packed.reshape(rows, -1), GGMLQuantizationType[kind])
    return cast("np.typing.NDArray[np.float32]", numbers)


def _hf_name(name: str) -> str:
    stem, _, suffix = name.rpartition(".")
    match = re.fullmatch(r"blk\.(\d+)\.(\w+)", stem)
    if match and match[2] in _GGUF_LAYER_NAMES:
        return f"model.layers.{match[1]}.{_GGUF_LAYER_NAMES[match[2]]}.{suffix}"
    return f"{_GGUF_NAMES[stem]}.{suffix}" if stem in _GGUF_NAMES else name


def _gguf_name(name: str) -> str:
    stem, _, suffix = name.rpartition(".")
    match = re.fullmatch(r"model\.layers\.(\d+)\.(.+)", stem)
    names = {hf: own for own, hf in (_GGUF_LAYER_NAMES if match else _GGUF_NAMES).items()}
    prefix, stem = (f"blk.{match[1]}.", match[2]) if match else ("", stem)
    return f"{prefix}{names[stem]}.{suffix}" if stem in names else name


def _map_files(tensors: Mapping[str, TensorInfo]) -> dict[Path, Bytes]:
    # Mode "c": private and writable, since torch warns of memory that it may not write.
    return {file: np.asarray(np.memmap(file, np.uint8, "c")) for file in {info.file for info in tensors.values()}}


def _rows(maps: Mapping[Path, Bytes], info: TensorInfo, first: int, last: int) -> Bytes:
    row_bytes = info.bytes // info.shape[0]
    return maps[info.file][info.offset + first * row_bytes : info.offset + last * row_bytes]
