"""Writes small GGUF files for tests, independently of the reader: bytes, field by field."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

U32, I32, F32, BOOL, STRING, ARRAY, U64 = 4, 5, 6, 7, 8, 9, 10
_FORMATS = {0: "B", 1: "b", 2: "H", 3: "h", U32: "I", I32: "i", F32: "f", BOOL: "?", U64: "Q", 11: "q", 12: "d"}


def text(value: str) -> bytes:
    data = value.encode("utf-8")
    return struct.pack("<Q", len(data)) + data


def scalar(kind: int, value: object) -> bytes:
    return text(str(value)) if kind == STRING else struct.pack("<" + _FORMATS[kind], value)


def array(kind: int, values: Sequence[object]) -> bytes:
    return struct.pack("<IQ", kind, len(values)) + b"".join(scalar(kind, value) for value in values)


def key(name: str, kind: int, data: bytes) -> bytes:
    return text(name) + struct.pack("<I", kind) + data


def string_key(name: str, value: str) -> bytes:
    return key(name, STRING, text(value))


def u32_key(name: str, value: int) -> bytes:
    return key(name, U32, scalar(U32, value))


def array_key(name: str, kind: int, values: Sequence[object]) -> bytes:
    return key(name, ARRAY, array(kind, values))


@dataclass
class Tensor:
    """One entry of the tensor index; `dims` are innermost first, as they lie in the file."""

    name: str
    dims: tuple[int, ...]
    kind: int = 0
    offset: int = 0

    def head(self) -> bytes:
        dims = struct.pack(f"<I{len(self.dims)}Q", len(self.dims), *self.dims)
        return text(self.name) + dims + struct.pack("<IQ", self.kind, self.offset)


@dataclass
class GgufBytes:
    """A whole file; everything that a hostile one would lie about can be set."""

    keys: list[bytes] = field(default_factory=list)
    tensors: list[Tensor] = field(default_factory=list)
    data: bytes = b""
    magic: bytes = b"GGUF"
    version: bytes = struct.pack("<I", 3)
    tensor_count: int | None = None
    key_count: int | None = None
    alignment: int = 32

    def build(self) -> bytes:
        tensor_count = len(self.tensors) if self.tensor_count is None else self.tensor_count
        key_count = len(self.keys) if self.key_count is None else self.key_count
        head = self.magic + self.version + struct.pack("<QQ", tensor_count, key_count)
        head += b"".join(self.keys) + b"".join(tensor.head() for tensor in self.tensors)
        return head + bytes(-len(head) % self.alignment) + self.data

    def write(self, path: Path) -> Path:
        path.write_bytes(self.build())
        return path


def llama_keys(**changes: int | str) -> list[bytes]:
    """Return the metadata of a tiny Llama without tokenizer; `changes` replace values by the key's last word."""
    values: dict[str, int | str] = {
        "general.architecture": "llama",
        "general.name": "Tiny",
        "general.license": "apache-2.0",
        "llama.context_length": 128,
        "llama.block_count": 2,
        "llama.embedding_length": 64,
        "llama.feed_forward_length": 96,
        "llama.attention.head_count": 4,
        "llama.attention.head_count_kv": 2,
        "llama.vocab_size": 256,
    }
    for name in values:
        values[name] = changes.pop(name.rpartition(".")[2], values[name])
    values |= changes
    return [
        string_key(name, value) if isinstance(value, str) else u32_key(name, value) for name, value in values.items()
    ]
