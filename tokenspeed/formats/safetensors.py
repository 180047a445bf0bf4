"""The tensor index of a safetensors checkpoint: one file, or a folder of shards.

Owns the reading of the JSON headers, without numpy and torch; tensor data stays on disk.
`model.safetensors.index.json` is followed where there is one; where it is stale, the shards are
right and a warning says so.
Format: https://huggingface.co/docs/safetensors/index

Invariant: every tensor returned lies inside its file and overlaps no other.
"""

from __future__ import annotations

import logging
import math
import re
from pathlib import Path
from typing import Annotated

import msgspec

from tokenspeed.errors import StartError
from tokenspeed.formats.tensor import TensorInfo

HEADER_BYTES_MAX = 100_000_000
INDEX_NAME = "model.safetensors.index.json"
DIMS_MAX = 16
NAMES_SHOWN_MAX = 5

# dtype -> bytes an element
DTYPES = {
    "BOOL": 1,
    "U8": 1,
    "I8": 1,
    "F8_E4M3": 1,
    "F8_E5M2": 1,
    "F8_E8M0": 1,
    "U16": 2,
    "I16": 2,
    "F16": 2,
    "BF16": 2,
    "U32": 4,
    "I32": 4,
    "F32": 4,
    "U64": 8,
    "I64": 8,
    "F64": 8,
}

_Size = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]

logger = logging.getLogger(__name__)


class _Entry(msgspec.Struct):
    """One tensor in a header; `data_offsets` count from the end of the header."""

    dtype: str
    shape: Annotated[list[_Size], msgspec.Meta(max_length=DIMS_MAX)]
    data_offsets: tuple[_Size, _Size]


class _Index(msgspec.Struct):
    weight_map: dict[str, str]


def read_safetensors(path: str | Path) -> dict[str, TensorInfo]:
    """Return every tensor of the file, or of the folder's shards, at `path` by name.

    Raises `StartError` for missing shards (all are named), and for files that are cut or
    contradict themselves or each other.
    """
    path = Path(path)
    if not path.is_dir():
        return _read_file(path)
    index = path / INDEX_NAME
    if index.is_file():
        return _read_indexed(path, _read_index(index))
    return _read_shards(path, _shards_in(path))


def _read_index(index: Path) -> dict[str, str]:
    try:
        weight_map = msgspec.json.decode(index.read_bytes(), type=_Index).weight_map
    except OSError as error:
        raise StartError(f"{index} cannot be read: {error.strerror}.") from error
    except msgspec.DecodeError as error:
        raise StartError(f"{index} is no weight index ({error}): download it again.") from error
    for shard in set(weight_map.values()):
        if Path(shard).name != shard or not shard.endswith(".safetensors"):
            raise StartError(f"{index} names the shard {shard!r}; a .safetensors file in the same folder is allowed.")
    return weight_map


def _read_indexed(folder: Path, weight_map: dict[str, str]) -> dict[str, TensorInfo]:
    tensors = _read_shards(folder, sorted(set(weight_map.values())))
    if lost := sorted(weight_map.keys() - tensors.keys()):
        raise StartError(
            f"{folder / INDEX_NAME} names {_some(lost)}, found in none of its shards: "
            "the index is stale or the shards are of another model; download the checkpoint again."
        )
    moved = [name for name, shard in weight_map.items() if tensors[name].file.name != shard]
    extra = sorted(tensors.keys() - weight_map.keys())
    if moved or extra:
        logger.warning(
            "%s is stale: %s; the shards are used as they are.",
            folder / INDEX_NAME,
            f"it leaves out {_some(extra)}" if extra else f"{_some(moved)} lie in other shards than it says",
        )
    return tensors


def _shards_in(folder: Path) -> list[str]:
    """Return the weight files of a folder without an index, the absent ones of a numbered set included."""
    names = sorted(file.name for file in folder.glob("*.safetensors"))
    if not names:
        raise StartError(f"{folder} holds no .safetensors file.")
    if "model.safetensors" in names:
        return ["model.safetensors"]
    numbered = [match for name in names if (match := re.fullmatch(r"(.*)-(\d{5})-of-(\d{5})\.safetensors", name))]
    if not numbered:
        return names
    stem, _, total = numbered[0].groups()
    return [f"{stem}-{number:05d}-of-{total}.safetensors" for number in range(1, int(total) + 1)]


def _read_shards(folder: Path, shards: list[str]) -> dict[str, TensorInfo]:
    if missing := [shard for shard in shards if not (folder / shard).is_file()]:
        raise StartError(
            f"{folder} lacks {len(missing)} of {len(shards)} weight files: {_some(missing)}. Download them again."
        )
    tensors: dict[str, TensorInfo] = {}
    for shard in shards:
        for name, tensor in _read_file(folder / shard).items():
            if name in tensors:
                raise StartError(f"{folder}: the tensor {name} is in both {tensors[name].file.name} and {shard}.")
            tensors[name] = tensor
    return tensors


def _read_file(path: Path) -> dict[str, TensorInfo]:
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(0)
            length = int.from_bytes(file.read(8), "little")
            if length > HEADER_BYTES_MAX:
                raise StartError(f"{path} begins with no safetensors header: it is another format or damaged.")
            if size < 8 + length:
                raise StartError(f"{path} ends at byte {size} of at least {8 + length} needed: download it again.")
            header = file.read(length)
    except OSError as error:
        raise StartError(f"{path} cannot be read: {error.strerror}.") from error
    tensors = [_tensor(path, 8 + length, name, entry) for name, entry in _entries(path, header).items()]
    _check_extent(path, size, tensors)
    return {tensor.name: tensor for tensor in tensors}


def _entries(path: Path, header: bytes) -> dict[str, _Entry]:
    try:
        raw = msgspec.json.decode(header, type=dict[str, msgspec.Raw])
        raw.pop("__metadata__", None)
        return {name: msgspec.json.decode(entry, type=_Entry) for name, entry in raw.items()}
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise StartError(f"{path} has a damaged header ({error}): download it again.") from error


def _tensor(path: Path, start: int, name: str, entry: _Entry) -> TensorInfo:
    if entry.dtype not in DTYPES:
        raise StartError(
            f"{path}: the tensor {name} has the unknown type {entry.dtype}; known are {', '.join(DTYPES)}."
        )
    begin, end = entry.data_offsets
    needed = math.prod(entry.shape) * DTYPES[entry.dtype]
    if end - begin != needed:
        raise StartError(
            f"{path}: the tensor {name} of shape {tuple(entry.shape)} and type {entry.dtype} needs {needed} bytes, "
            f"its header gives it {end - begin}: download it again."
        )
    return TensorInfo(name, tuple(entry.shape), entry.dtype, start + begin, needed, path)


def _check_extent(path: Path, size: int, tensors: list[TensorInfo]) -> None:
    end, before = 0, ""
    for tensor in sorted(tensors, key=lambda entry: (entry.offset, entry.bytes)):
        if tensor.offset < end:
            raise StartError(f"{path}: the tensors {before} and {tensor.name} overlap: download it again.")
        end, before = tensor.offset + tensor.bytes, tensor.name
    if end > size:
        raise StartError(f"{path} ends at byte {size} of {end} needed: download it again.")


def _some(names: list[str]) -> str:
    """Return the first few of `names`, and how many more there are."""
    shown = ", ".join(names[:NAMES_SHOWN_MAX])
    return shown if len(names) <= NAMES_SHOWN_MAX else f"{shown} and {len(names) - NAMES_SHOWN_MAX} more"
