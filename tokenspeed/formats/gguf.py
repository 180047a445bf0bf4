"""The metadata and the tensor index of a GGUF file, version 2 or 3.

Owns the reading of the file's head, memory-mapped, with neither numpy nor torch. It does not read
tensor data and does not know what a key means.
Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md

Invariant: every count and length is compared with the bytes that are left before it is used, and
every tensor returned lies inside the file, aligned, and overlaps no other.
"""

from __future__ import annotations

import math
import mmap
import struct
from pathlib import Path
from typing import NoReturn, TypeVar, cast

import msgspec

from tokenspeed.errors import StartError
from tokenspeed.formats.tensor import TensorInfo

MAGIC = b"GGUF"
VERSIONS = (2, 3)
DIMS_MAX = 4
NAME_BYTES_MAX = 65_535
ARRAY_DEPTH_MAX = 4
ALIGNMENT_DEFAULT = 32

# GGML type number -> name, elements a block, bytes a block
TENSOR_TYPES = {
    0: ("F32", 1, 4),
    1: ("F16", 1, 2),
    2: ("Q4_0", 32, 18),
    3: ("Q4_1", 32, 20),
    6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24),
    8: ("Q8_0", 32, 34),
    9: ("Q8_1", 32, 40),
    10: ("Q2_K", 256, 84),
    11: ("Q3_K", 256, 110),
    12: ("Q4_K", 256, 144),
    13: ("Q5_K", 256, 176),
    14: ("Q6_K", 256, 210),
    15: ("Q8_K", 256, 292),
    16: ("IQ2_XXS", 256, 66),
    17: ("IQ2_XS", 256, 74),
    18: ("IQ3_XXS", 256, 98),
    19: ("IQ1_S", 256, 50),
    20: ("IQ4_NL", 32, 18),
    21: ("IQ3_S", 256, 110),
    22: ("IQ2_S", 256, 82),
    23: ("IQ4_XS", 256, 136),
    24: ("I8", 1, 1),
    25: ("I16", 1, 2),
    26: ("I32", 1, 4),
    27: ("I64", 1, 8),
    28: ("F64", 1, 8),
    29: ("IQ1_M", 256, 56),
    30: ("BF16", 1, 2),
    34: ("TQ1_0", 256, 54),
    35: ("TQ2_0", 256, 66),
    39: ("MXFP4", 32, 17),
}

# GGUF value type number -> struct format
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9

_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")

T = TypeVar("T")


class GgufFile(msgspec.Struct, frozen=True):
    """The head of a GGUF file: `metadata` by key, `tensors` by name in the order of the file."""

    path: Path
    metadata: dict[str, object]
    tensors: dict[str, TensorInfo]

    def get(self, key: str, kind: type[T]) -> T | None:
        """Return the value of `key`, None if absent; raise `StartError` if it is no `kind`."""
        value = self.metadata.get(key)
        if kind is float and type(value) is int:
            return cast("T", float(value))
        if value is None or (isinstance(value, kind) and not (kind is int and isinstance(value, bool))):
            return value
        raise StartError(f"{self.path}: {key} is of type {type(value).__name__}; {kind.__name__} is needed.")

    def need(self, key: str, kind: type[T]) -> T:
        """Return the value of `key`; raise `StartError` if it is absent or no `kind`."""
        value = self.get(key, kind)
        if value is None:
            raise StartError(f"{self.path}: the metadata has no {key}; convert or download the file again.")
        return value

    def strings(self, key: str) -> list[str]:
        """Return the list of strings under `key`, empty if absent."""
        return cast("list[str]", self._items(key, str))

    def ints(self, key: str) -> list[int]:
        """Return the list of integers under `key`, empty if absent."""
        return cast("list[int]", self._items(key, int))

    def floats(self, key: str) -> list[float]:
        """Return the list of floats under `key`, empty if absent."""
        return cast("list[float]", self._items(key, float))

    def _items(self, key: str, kind: type) -> list[object]:
        # Arrays are of one type, so that the first item speaks for all.
        items = cast("list[object]", self.get(key, list) or [])
        if items and type(items[0]) is not kind:
            raise StartError(f"{self.path}: {key} holds {type(items[0]).__name__}s; {kind.__name__}s are needed.")
        return items


def read_gguf(path: str | Path) -> GgufFile:
    """Read metadata and tensor index of the file at `path`.

    Raises `StartError` for a file that is missing, cut, of another format or contradicts itself.
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            if file.read(4) != MAGIC:
                raise StartError(f"{path} does not begin with {MAGIC.decode()}: it is no GGUF file.")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return _Reader(path, data).file()
    except OSError as error:
        raise StartError(f"{path} cannot be read: {error.strerror}.") from error


class _Reader:
    """A position in the mapped file, and what was read up to it."""

    def __init__(self, path: Path, data: mmap.mmap) -> None:
        self.path = path
        self.data = data
        self.size = len(data)
        self.pos = len(MAGIC)

    def file(self) -> GgufFile:
        self._version()
        tensors, keys = self._u64(), self._u64()
        self._count("tensors", tensors, 8 + 4 + 8 + 4 + 8)
        self._count("metadata keys", keys, 8 + 4 + 1)
        metadata: dict[str, object] = {}
        for _ in range(keys):
            key = self._name("metadata key")
            if key in metadata:
                self._fail(f"the metadata key {key} comes twice")
            metadata[key] = self._value(self._u32(), key)
        alignment = metadata.get("general.alignment", ALIGNMENT_DEFAULT)
        if type(alignment) is not int or alignment < 1 or alignment & (alignment - 1):
            self._fail(f"general.alignment is {alignment!r}; it must be a power of two")
        return GgufFile(self.path, metadata, self._tensors(tensors, alignment))

    def _version(self) -> None:
        version = self._u32()
        if version in VERSIONS:
            return
        if int.from_bytes(version.to_bytes(4, "little"), "big") in VERSIONS:
            raise StartError(f"{self.path} is a big-endian GGUF file; use the little-endian one.")
        raise StartError(f"{self.path} is GGUF version {version}; versions 2 and 3 can be read: convert it again.")

    def _tensors(self, count: int, alignment: int) -> dict[str, TensorInfo]:
        heads = [self._tensor_head() for _ in range(count)]
        start = -(-self.pos // alignment) * alignment
        tensors: dict[str, TensorInfo] = {}
        for name, shape, kind, offset in heads:
            if name in tensors:
                self._fail(f"the tensor {name} comes twice")
            if offset % alignment:
                self._fail(f"the tensor {name} is at offset {offset}, no multiple of {alignment}")
            type_name, block_elements, block_bytes = TENSOR_TYPES[kind]
            size = math.prod(shape) // block_elements * block_bytes
            tensors[name] = TensorInfo(name, shape, type_name, start + offset, size, self.path)
        self._check_extent(list(tensors.values()))
        return tensors

    def _tensor_head(self) -> tuple[str, tuple[int, ...], int, int]:
        name = self._name("tensor name")
        dims = self._u32()
        if not 1 <= dims <= DIMS_MAX:
            self._fail(f"the tensor {name} has {dims} dimensions; 1 to {DIMS_MAX} are allowed")
        shape = tuple(reversed([self._u64() for _ in range(dims)]))
        kind, offset = self._u32(), self._u64()
        if kind not in TENSOR_TYPES:
            raise StartError(
                f"{self.path}: the tensor {name} has the unknown type number {kind}; "
                f"known are {', '.join(entry[0] for entry in TENSOR_TYPES.values())}."
            )
        if math.prod(shape) >= 2**63 or 0 in shape or shape[-1] % TENSOR_TYPES[kind][1]:
            self._fail(f"the tensor {name} has the impossible shape {shape} for type {TENSOR_TYPES[kind][0]}")
        return name, shape, kind, offset

    def _check_extent(self, tensors: list[TensorInfo]) -> None:
        end, before = 0, ""
        for tensor in sorted(tensors, key=lambda entry: entry.offset):
            if tensor.offset < end:
                self._fail(f"the tensors {before} and {tensor.name} overlap")
            end, before = tensor.offset + tensor.bytes, tensor.name
        if end > self.size:
            raise StartError(f"{self.path} ends at byte {self.size} of {end} needed: download it again.")

    def _value(self, kind: int, key: str, depth: int = 0) -> object:
        if kind == _STRING:
            return self._strings(1)[0]
        if kind == _ARRAY:
            if depth == ARRAY_DEPTH_MAX:
                self._fail(f"the metadata key {key} nests arrays deeper than {ARRAY_DEPTH_MAX}")
            return self._array(self._u32(), self._u64(), key, depth + 1)
        return self._scalars(kind, 1, key)[0]

    def _array(self, kind: int, count: int, key: str, depth: int) -> list[object]:
        if kind == _STRING:
            self._count(f"strings in {key}", count, 8)
            return cast("list[object]", self._strings(count))
        if kind == _ARRAY:
            self._count(f"arrays in {key}", count, 4 + 8)
            return [self._value(_ARRAY, key, depth) for _ in range(count)]
        return self._scalars(kind, count, key)

    def _scalars(self, kind: int, count: int, key: str) -> list[object]:
        if kind not in _SCALARS:
            self._fail(f"the metadata key {key} has the unknown value type {kind}")
        letter = _SCALARS[kind]
        size = struct.calcsize("<" + letter)
        self._count(f"values in {key}", count, size)
        values = struct.unpack_from(f"<{count}{letter}", self.data, self.pos)
        self.pos += count * size
        return list(values)

    def _strings(self, count: int) -> list[str]:
        # The hot loop: a vocabulary and its merges are 100,000 strings and more.
        data, pos, size, length_at = self.data, self.pos, self.size, _U64.unpack_from
        texts = []
        for _ in range(count):
            if size - pos < 8:
                self._ends(pos + 8)
            begin = pos + 8
            pos = begin + length_at(data, pos)[0]
            if pos > size:
                self._ends(pos)
            try:
                texts.append(str(data[begin:pos], "utf-8"))
            except UnicodeDecodeError:
                self._fail(f"the string at byte {begin} is not UTF-8")
        self.pos = pos
        return texts

    def _name(self, what: str) -> str:
        if self.size - self.pos >= 8:
            length = _U64.unpack_from(self.data, self.pos)[0]
            if not 1 <= length <= NAME_BYTES_MAX:
                self._fail(f"a {what} at byte {self.pos} is {length} bytes long; 1 to {NAME_BYTES_MAX} are allowed")
        return self._strings(1)[0]

    def _u32(self) -> int:
        return self._number(_U32)

    def _u64(self) -> int:
        return self._number(_U64)

    def _number(self, form: struct.Struct) -> int:
        if self.size - self.pos < form.size:
            self._ends(self.pos + form.size)
        value: int = form.unpack_from(self.data, self.pos)[0]
        self.pos += form.size
        return value

    def _count(self, what: str, count: int, size: int) -> None:
        if count * size > self.size - self.pos:
            self._ends(self.pos + count * size, f" for its {count} {what}")

    def _ends(self, needed: int, why: str = "") -> NoReturn:
        raise StartError(f"{self.path} ends at byte {self.size} of at least {needed} needed{why}: download it again.")

    def _fail(self, what: str) -> NoReturn:
        raise StartError(f"{self.path}: {what}. The file is damaged: download or convert it again.")
