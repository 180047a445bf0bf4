"""Every block format against the gguf package, and packed rows as they lie in the file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFWriter, quants
from numpy.typing import NDArray

from tokenspeed.errors import StartError
from tokenspeed.formats.checkpoint import GGUF_TYPES
from tokenspeed.formats.gguf import TENSOR_TYPES
from tokenspeed.model.checkpoint import GgufTensors, open_checkpoint

HEAD_DIM = 4
ROWS = 12


def blocks(kind: str, count: int, seed: int = 0) -> NDArray[np.uint8]:
    """Return `count` blocks of random bytes whose numbers are finite and of a size that weights have."""
    size, block_bytes = GGML_QUANT_SIZES[GGMLQuantizationType[kind]]
    random = np.random.default_rng(seed)
    found: list[NDArray[np.uint8]] = []
    while sum(map(len, found)) < count:
        packed = random.integers(0, 256, (20 * count, block_bytes), np.uint8)
        with np.errstate(all="ignore"):
            numbers = quants.dequantize(packed, GGMLQuantizationType[kind]).reshape(-1, size)
            found.append(packed[np.isfinite(numbers).all(1) & (np.abs(numbers).max(1) < 100)])
    return np.concatenate(found)[:count]


def write(path: Path, kind: str, packed: NDArray[np.uint8]) -> GgufTensors:
    """Write `packed` as the keys and as the gate of a layer, and open the file."""
    writer = GGUFWriter(path, "llama")
    for name in ("blk.0.attn_k.weight", "blk.0.ffn_gate.weight"):
        writer.add_tensor(name, packed, raw_dtype=GGMLQuantizationType[kind])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    tensors = open_checkpoint(path, HEAD_DIM)
    assert isinstance(tensors, GgufTensors)
    return tensors


def dequantisable() -> set[str]:
    """Return the types that the gguf package turns into numbers."""
    found = set()
    for number, (kind, size, block_bytes) in TENSOR_TYPES.items():
        try:
            quants.dequantize(np.zeros((1, 256 // size * block_bytes), np.uint8), GGMLQuantizationType(number))
        except RuntimeError:
            continue
        found.add(kind)
    return found


def test_all_that_the_package_can_read_is_read() -> None:
    assert set(GGUF_TYPES) == dequantisable()
    assert {kind: sizes for kind, *sizes in TENSOR_TYPES.values()} == {
        kind: list(GGML_QUANT_SIZES[GGMLQuantizationType[kind]]) for kind, *_ in TENSOR_TYPES.values()
    }


@pytest.mark.parametrize("kind", [kind for kind in GGUF_TYPES if kind not in ("F32", "F16", "BF16")])
def test_blocks_are_read_as_the_package_reads_them(kind: str, tmp_path: Path) -> None:
    """Whole and in parts; the rows of keys come back in the order of a safetensors checkpoint."""
    size = GGML_QUANT_SIZES[GGMLQuantizationType[kind]][0]
    packed = blocks(kind, ROWS * 512 // size).reshape(ROWS, -1)
    tensors = write(tmp_path / "m.gguf", kind, packed)
    wanted = quants.dequantize(packed, GGMLQuantizationType[kind])
    gate, keys = "model.layers.0.mlp.gate_proj.weight", "model.layers.0.self_attn.k_proj.weight"
    assert np.array_equal(tensors.read(gate, 0, ROWS), wanted)
    assert np.array_equal(tensors.read(gate, 5, 7), wanted[5:7])
    turned = wanted.reshape(-1, 2, 2, 512).swapaxes(1, 2).reshape(ROWS, 512)
    assert np.array_equal(tensors.read(keys, 4, 12), turned[4:12])
    assert tensors.packed(keys, 4, 12)[0] == kind
    assert np.array_equal(tensors.packed(keys, 4, 12)[1], packed[4:12])


def test_other_types_are_named(tmp_path: Path) -> None:
    with pytest.raises(StartError, match=r"stores blk.0.attn_k.weight as Q8_1; F32, .* can be read"):
        write(tmp_path / "m.gguf", "Q8_1", np.zeros((4, 40), np.uint8))
