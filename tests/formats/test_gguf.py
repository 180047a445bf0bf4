"""The GGUF reader, against the reference reader and against damaged files."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.formats.gguf_files import (
    ARRAY,
    BOOL,
    F32,
    STRING,
    U32,
    U64,
    GgufBytes,
    Tensor,
    array_key,
    key,
    scalar,
    string_key,
    u32_key,
)
from tokenspeed.demo import find_demo
from tokenspeed.errors import StartError
from tokenspeed.formats.gguf import TENSOR_TYPES, read_gguf

needs_demo = pytest.mark.skipif(find_demo() is None, reason="the demo model is not installed")


def demo() -> Path:
    path = find_demo()
    assert path is not None
    return path


@needs_demo
@pytest.mark.prove(shows="the GGUF reader agrees with the reference reader on the demo model", limit_s=120)
def test_agrees_with_the_reference_reader_on_the_demo() -> None:
    agrees_with_the_reference_reader(demo())


def test_agrees_with_the_reference_reader_on_a_file_of_the_reference_writer(tmp_path: Path) -> None:
    path = tmp_path / "written.gguf"
    writer: Any = gguf.GGUFWriter(path, "llama")
    writer.add_name("Größe")
    writer.add_block_count(2)
    writer.add_rope_freq_base(10000.5)
    writer.add_add_bos_token(True)
    writer.add_token_list(["a", "ü", "", "日本"])
    writer.add_token_scores([0.5, -1.0, 2.0, 0.0])
    writer.add_token_types([1, 3, -1, 6])
    writer.add_tensor("w", numpy.arange(12, dtype=numpy.float32).reshape(3, 4))
    writer.add_tensor("h", numpy.ones((2, 3, 5), dtype=numpy.float16))
    writer.add_tensor("q", numpy.ones((2, 34), dtype=numpy.uint8), raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    agrees_with_the_reference_reader(path)


def agrees_with_the_reference_reader(path: Path) -> None:
    file = read_gguf(path)
    reference: Any = gguf.GGUFReader(str(path))
    expected = {name: entry.contents() for name, entry in reference.fields.items() if not name.startswith("GGUF.")}
    assert file.metadata == expected
    assert list(file.tensors) == [tensor.name for tensor in reference.tensors]
    for tensor in reference.tensors:
        found = file.tensors[tensor.name]
        assert found.shape == tuple(reversed([int(size) for size in tensor.shape]))
        assert (found.offset, found.bytes) == (int(tensor.data_offset), int(tensor.n_bytes))
        assert found.type == tensor.tensor_type.name
        assert found.elements == int(tensor.n_elements)


@needs_demo
def test_reads_the_demo_quickly() -> None:
    best = min(_seconds(lambda: read_gguf(demo())) for _ in range(5))
    assert best < 0.3


def _seconds(call: Callable[[], object]) -> float:
    begin = time.process_time()
    call()
    return time.process_time() - begin


def test_type_table_agrees_with_the_reference() -> None:
    for number, (name, elements, size) in TENSOR_TYPES.items():
        kind = gguf.GGMLQuantizationType(number)
        assert (kind.name, gguf.GGML_QUANT_SIZES[kind]) == (name, (elements, size))


@pytest.mark.parametrize("version", [2, 3])
def test_reads_every_kind_of_value(tmp_path: Path, version: int) -> None:
    keys = [
        string_key("s", "Größe"),
        u32_key("u", 7),
        key("f", F32, scalar(F32, 0.5)),
        key("b", BOOL, scalar(BOOL, True)),
        array_key("strings", STRING, ["a", "", "ü"]),
        array_key("numbers", U64, [1, 2**40]),
        key("nested", ARRAY, struct.pack("<IQ", ARRAY, 1) + struct.pack("<IQ2I", U32, 2, 5, 6)),
        array_key("empty", STRING, []),
    ]
    tensors = [Tensor("w", (64, 3), 2, 0), Tensor("bias", (3,), 0, 128)]
    path = GgufBytes(keys, tensors, bytes(140), version=struct.pack("<I", version)).write(tmp_path / "a.gguf")
    file = read_gguf(path)
    assert file.metadata == {
        "s": "Größe",
        "u": 7,
        "f": 0.5,
        "b": True,
        "strings": ["a", "", "ü"],
        "numbers": [1, 2**40],
        "nested": [[5, 6]],
        "empty": [],
    }
    start = path.stat().st_size - 140
    assert [(t.name, t.shape, t.type, t.offset - start, t.bytes) for t in file.tensors.values()] == [
        ("w", (3, 64), "Q4_0", 0, 108),
        ("bias", (3,), "F32", 128, 12),
    ]
    assert file.strings("strings") == ["a", "", "ü"]
    assert file.strings("absent") == []
    assert file.ints("numbers") == [1, 2**40]
    assert file.get("u", float) == 7.0
    assert file.get("absent", int) is None
    for wrong in (lambda: file.get("s", int), lambda: file.get("b", int), lambda: file.ints("strings")):
        with pytest.raises(StartError, match="needed"):
            wrong()
    with pytest.raises(StartError, match="has no absent"):
        file.need("absent", str)


def test_honours_the_alignment(tmp_path: Path) -> None:
    keys = [u32_key("general.alignment", 128)]
    path = GgufBytes(keys, [Tensor("w", (4,))], bytes(16), alignment=128).write(tmp_path / "a.gguf")
    assert read_gguf(path).tensors["w"].offset % 128 == 0


W = Tensor("w", (32,))

DAMAGED = {
    "not GGUF": (GgufBytes(magic=b"PK\x03\x04"), "does not begin with GGUF"),
    "version 1": (GgufBytes(version=struct.pack("<I", 1)), "version 1; versions 2 and 3"),
    "big-endian": (GgufBytes(version=struct.pack(">I", 3)), "big-endian"),
    "absurd key count": (GgufBytes(key_count=2**62), "ends at byte .* needed for its .* metadata keys"),
    "absurd tensor count": (GgufBytes(tensor_count=2**62), "ends at byte .* needed for its .* tensors"),
    "absurd string": (GgufBytes([key("k", STRING, struct.pack("<Q", 2**63))]), "ends at byte"),
    "absurd array": (GgufBytes([key("k", ARRAY, struct.pack("<IQ", U32, 2**61))]), "values in k"),
    "absurd strings": (GgufBytes([key("k", ARRAY, struct.pack("<IQ", STRING, 2**61))]), "strings in k"),
    "absurd arrays": (GgufBytes([key("k", ARRAY, struct.pack("<IQ", ARRAY, 2**61))]), "arrays in k"),
    "deep arrays": (GgufBytes([key("k", ARRAY, struct.pack("<IQ", ARRAY, 1) * 20)]), "nests arrays deeper"),
    "unknown value type": (GgufBytes([key("k", 77, bytes(8))]), "value type 77"),
    "empty key": (GgufBytes([key("", U32, bytes(4))]), "0 bytes long"),
    "not UTF-8": (GgufBytes([key("k", STRING, struct.pack("<Q", 1) + b"\xff")]), "not UTF-8"),
    "key twice": (GgufBytes([u32_key("k", 1), u32_key("k", 2)]), "k comes twice"),
    "odd alignment": (GgufBytes([u32_key("general.alignment", 24)]), "power of two"),
    "tensor twice": (GgufBytes([], [W, Tensor("w", (32,), 0, 128)], bytes(256)), "w comes twice"),
    "unaligned": (GgufBytes([], [Tensor("w", (32,), 0, 8)], bytes(256)), "no multiple of 32"),
    "overlap": (GgufBytes([], [W, Tensor("x", (32,), 0, 96)], bytes(256)), "w and x overlap"),
    "no dimensions": (GgufBytes([], [Tensor("w", ())], bytes(256)), "0 dimensions"),
    "many dimensions": (GgufBytes([], [Tensor("w", (1,) * 9)], bytes(256)), "9 dimensions"),
    "empty dimension": (GgufBytes([], [Tensor("w", (32, 0))], bytes(256)), "impossible shape"),
    "huge shape": (GgufBytes([], [Tensor("w", (2**40, 2**40))], bytes(256)), "impossible shape"),
    "partial block": (GgufBytes([], [Tensor("w", (33,), 2)], bytes(256)), "impossible shape"),
    "unknown tensor type": (GgufBytes([], [Tensor("w", (32,), 99)], bytes(256)), "type number 99"),
}


@pytest.mark.parametrize(("content", "message"), DAMAGED.values(), ids=DAMAGED)
def test_refuses_damaged_files(tmp_path: Path, content: GgufBytes, message: str) -> None:
    path = content.write(tmp_path / "bad.gguf")
    with pytest.raises(StartError, match=message) as caught:
        read_gguf(path)
    assert str(path) in caught.value.message


def test_names_a_missing_file(tmp_path: Path) -> None:
    for path in (tmp_path / "absent.gguf", tmp_path):
        with pytest.raises(StartError, match="cannot be read"):
            read_gguf(path)


def test_every_cut_is_noticed(tmp_path: Path) -> None:
    keys = [string_key("name", "x" * 20), array_key("list", STRING, ["a", "bc"]), u32_key("u", 1)]
    whole = GgufBytes(keys, [Tensor("w", (16,)), Tensor("v", (16,), 0, 64)], bytes(128)).build()
    path = tmp_path / "cut.gguf"
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        with pytest.raises(StartError, match="no GGUF file" if size < 4 else "download it again"):
            read_gguf(path)
    path.write_bytes(whole[:-1])
    with pytest.raises(StartError, match=f"ends at byte {len(whole) - 1} of {len(whole)} needed: download it again"):
        read_gguf(path)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.integers(4, 10_000), st.integers(0, 255)), min_size=1, max_size=8))
def test_flipped_bytes_never_crash(tmp_path_factory: pytest.TempPathFactory, flips: list[tuple[int, int]]) -> None:
    keys = [string_key("name", "x"), array_key("list", STRING, ["a", "bc"]), array_key("n", U32, [1, 2, 3])]
    data = bytearray(GgufBytes(keys, [Tensor("w", (16,)), Tensor("v", (16,), 0, 64)], bytes(128)).build())
    for place, value in flips:
        data[4 + (place - 4) % (len(data) - 4)] = value
    path = tmp_path_factory.getbasetemp() / "flipped.gguf"
    path.write_bytes(data)
    try:
        file = read_gguf(path)
    except StartError:
        return
    assert all(tensor.offset + tensor.bytes <= len(data) for tensor in file.tensors.values())
