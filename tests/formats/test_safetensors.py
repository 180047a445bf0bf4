"""The safetensors index reader, against the library that writes such files and against damaged ones."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.numpy import save_file

from tokenspeed.errors import StartError
from tokenspeed.formats.safetensors import INDEX_NAME, read_safetensors


def raw(header: object, data: bytes = b"", length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(text) if length is None else length).to_bytes(8, "little") + text + data


def entry(begin: int, end: int, shape: list[int], dtype: str = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def shard(folder: Path, name: str, *tensors: str) -> None:
    save_file({tensor: numpy.ones(2, dtype=numpy.float32) for tensor in tensors}, folder / name)


def index(folder: Path, weight_map: object) -> None:
    (folder / INDEX_NAME).write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": weight_map}))


def test_agrees_with_the_library(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    arrays: dict[str, Any] = {
        "a": numpy.arange(6, dtype=numpy.float32).reshape(2, 3),
        "b": numpy.arange(4, dtype=numpy.float16),
        "scalar": numpy.array(7, dtype=numpy.int64),
        "empty": numpy.zeros((0, 3), dtype=numpy.float32),
    }
    save_file(arrays, path, metadata={"format": "pt"})
    found = read_safetensors(path)
    assert read_safetensors(tmp_path) == found
    data = path.read_bytes()
    with safe_open(path, "numpy") as reference:
        assert set(found) == set(reference.keys())
        for name, tensor in found.items():
            part = reference.get_slice(name)
            assert (tensor.type, tensor.shape) == (part.get_dtype(), tuple(part.get_shape()))
            assert data[tensor.offset : tensor.offset + tensor.bytes] == arrays[name].tobytes()
            assert (tensor.file, tensor.elements) == (path, arrays[name].size)


def test_shards_by_index(tmp_path: Path) -> None:
    shard(tmp_path, "one.safetensors", "a", "b")
    shard(tmp_path, "other.safetensors", "c")
    shard(tmp_path, "stray.safetensors", "d")
    index(tmp_path, {"a": "one.safetensors", "b": "one.safetensors", "c": "other.safetensors"})
    found = read_safetensors(tmp_path)
    assert {name: tensor.file.name for name, tensor in found.items()} == {
        "a": "one.safetensors",
        "b": "one.safetensors",
        "c": "other.safetensors",
    }


def test_shards_without_index(tmp_path: Path) -> None:
    for number, name in ((1, "a"), (2, "b")):
        shard(tmp_path, f"model-{number:05d}-of-00002.safetensors", name)
    assert set(read_safetensors(tmp_path)) == {"a", "b"}


def test_names_missing_shards(tmp_path: Path) -> None:
    shard(tmp_path, "model-00002-of-00004.safetensors", "a")
    missing = (
        "lacks 3 of 4 weight files: model-00001-of-00004.safetensors, model-00003-of-00004.safetensors, model-00004"
    )
    with pytest.raises(StartError, match=missing):
        read_safetensors(tmp_path)
    index(tmp_path, {f"t{number}": f"s{number}.safetensors" for number in range(9)})
    with pytest.raises(StartError, match=r"lacks 9 of 9 weight files: s0\.safetensors, .* and 4 more"):
        read_safetensors(tmp_path)


def test_stale_index_that_leaves_tensors_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    shard(tmp_path, "one.safetensors", "a", "b")
    index(tmp_path, {"a": "one.safetensors"})
    with caplog.at_level(logging.WARNING):
        assert set(read_safetensors(tmp_path)) == {"a", "b"}
    assert "is stale: it leaves out b" in caplog.text


def test_stale_index_with_moved_tensors(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    shard(tmp_path, "one.safetensors", "a")
    shard(tmp_path, "two.safetensors", "b")
    index(tmp_path, {"a": "two.safetensors", "b": "one.safetensors"})
    with caplog.at_level(logging.WARNING):
        assert read_safetensors(tmp_path)["a"].file.name == "one.safetensors"
    assert "is stale: a, b lie in other shards" in caplog.text


def test_index_of_another_model(tmp_path: Path) -> None:
    shard(tmp_path, "one.safetensors", "a")
    index(tmp_path, {"a": "one.safetensors", "zz": "one.safetensors"})
    with pytest.raises(StartError, match="names zz, found in none of its shards: the index is stale"):
        read_safetensors(tmp_path)


@pytest.mark.parametrize("name", ["../x.safetensors", "/etc/x.safetensors", "x.bin", ""])
def test_index_may_not_leave_the_folder(tmp_path: Path, name: str) -> None:
    index(tmp_path, {"a": name})
    with pytest.raises(StartError, match="in the same folder is allowed"):
        read_safetensors(tmp_path)


def test_damaged_index(tmp_path: Path) -> None:
    for content in ("{", "[]", '{"weight_map": {"a": 1}}'):
        (tmp_path / INDEX_NAME).write_text(content)
        with pytest.raises(StartError, match="is no weight index"):
            read_safetensors(tmp_path)


def test_one_tensor_in_two_shards(tmp_path: Path) -> None:
    for name in ("x.safetensors", "y.safetensors"):
        shard(tmp_path, name, "a")
    with pytest.raises(StartError, match=r"a is in both x\.safetensors and y\.safetensors"):
        read_safetensors(tmp_path)


DAMAGED = {
    "empty": (b"", "ends at byte 0 of at least 8 needed"),
    "short": (b"\1\0\0", "ends at byte 3 of at least"),
    "cut header": (raw({}, length=50), "ends at byte 10 of at least 58 needed: download it again"),
    "other format": (b"PK\3\4" * 4, "no safetensors header"),
    "no JSON": (raw(b"{x"), "damaged header"),
    "no object": (raw([1]), "damaged header"),
    "not UTF-8": (raw(b'{"\xff": 1}'), "damaged header"),
    "odd entry": (raw({"a": {"dtype": "F32"}}), "damaged header"),
    "negative": (raw({"a": entry(-4, 0, [1])}), "damaged header"),
    "negative shape": (raw({"a": entry(0, 4, [-1])}), "damaged header"),
    "many dimensions": (raw({"a": entry(0, 4, [1] * 17)}, bytes(4)), "damaged header"),
    "unknown type": (raw({"a": entry(0, 4, [1], "F3")}, bytes(4)), "unknown type F3; known are"),
    "wrong size": (raw({"a": entry(0, 8, [1])}, bytes(8)), r"shape \(1,\) and type F32 needs 4 bytes.* gives it 8"),
    "reversed": (raw({"a": entry(4, 0, [1])}, bytes(4)), "needs 4 bytes"),
    "overlap": (raw({"a": entry(0, 8, [2]), "b": entry(4, 8, [1])}, bytes(8)), "a and b overlap"),
    "cut data": (raw({"a": entry(0, 8, [2])}, bytes(7)), r"ends at byte \d+ of \d+ needed: download it again"),
    "huge": (raw({"a": entry(0, 2**62, [2**60])}), "ends at byte"),
}


@pytest.mark.parametrize(("data", "message"), DAMAGED.values(), ids=DAMAGED)
def test_refuses_damaged_files(tmp_path: Path, data: bytes, message: str) -> None:
    path = tmp_path / "bad.safetensors"
    path.write_bytes(data)
    with pytest.raises(StartError, match=message) as caught:
        read_safetensors(path)
    assert str(path) in caught.value.message


def test_absent(tmp_path: Path) -> None:
    with pytest.raises(StartError, match="cannot be read"):
        read_safetensors(tmp_path / "absent.safetensors")
    with pytest.raises(StartError, match=r"holds no \.safetensors file"):
        read_safetensors(tmp_path)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), min_size=1, max_size=6))
def test_flipped_bytes_never_crash(tmp_path_factory: pytest.TempPathFactory, flips: list[tuple[int, int]]) -> None:
    data = bytearray(raw({"a": entry(0, 8, [2]), "b": entry(8, 12, [1])}, bytes(12)))
    for place, value in flips:
        data[place % len(data)] = value
    path = tmp_path_factory.getbasetemp() / "flipped.safetensors"
    path.write_bytes(data)
    try:
        found = read_safetensors(path)
    except StartError:
        return
    assert all(tensor.offset + tensor.bytes <= len(data) for tensor in found.values())
