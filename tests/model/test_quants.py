"""Weights as whole numbers: what the blocks of a file hold, what is rounded, and models that keep them."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from tokenspeed_kernels import selector
from tokenspeed_kernels.gemm.packed_weight import unpack

from tests.llamas import random_llama, save_folder, save_gguf
from tokenspeed.model.build import Declared, declare_model
from tokenspeed.model.checkpoint import open_checkpoint
from tokenspeed.model.placement import OneRank
from tokenspeed.model.quants import FORMS, ROUNDED, Form, Quants, common_form, pack_quants, read_blocks, round_rows

ROWS, INPUTS = 6, 512
# Rows of whole blocks for every part of the model, heads of 32.
SIZES = {"hidden_size": 64, "intermediate_size": 96, "head_dim": 32, "num_attention_heads": 2, "num_key_value_heads": 1}


def numbers(rows: Quants) -> torch.Tensor:
    blocks = rows.q.float().view(len(rows.q), -1, 32) * rows.scale.float().unsqueeze(2)
    return (blocks if rows.low is None else blocks + rows.low.float().unsqueeze(2)).view(rows.q.shape)


def random_blocks(kind: str) -> np.typing.NDArray[np.uint8]:
    """Blocks of any bits but for the scales, which are halves near 0.01."""
    block, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind]]
    blocks = np.random.default_rng(3).integers(0, 256, (ROWS * INPUTS // block, size), np.uint8)
    halves = 2 if kind in ("Q4_1", "Q5_1", "Q4_K", "Q5_K") else 1
    scales = np.random.default_rng(4).uniform(0.005, 0.02, (len(blocks), halves)).astype(np.float16)
    blocks[:, : 2 * halves] = scales.view(np.uint8)
    return blocks


@pytest.mark.parametrize("kind", sorted(FORMS))
def test_blocks_hold_what_the_library_reads_in_them(kind: str) -> None:
    blocks = random_blocks(kind)
    rows = read_blocks(blocks.reshape(-1), kind, ROWS)
    wanted = gguf.quants.dequantize(blocks, gguf.GGMLQuantizationType[kind]).reshape(ROWS, INPUTS)
    assert rows.q.shape == (ROWS, INPUTS)
    assert (rows.low is not None) == FORMS[kind].has_low
    assert torch.allclose(numbers(rows), torch.from_numpy(wanted), rtol=1e-6, atol=1e-7)
    packed = unpack(pack_quants([rows], FORMS[kind]))
    # The scales of K-blocks are products, and become float16.
    tolerance = 5e-4 * float(wanted.max()) if kind.endswith("_K") else 0.0
    assert torch.allclose(packed, torch.from_numpy(wanted), rtol=0, atol=tolerance)


def test_rounded_rows_are_within_half_a_level() -> None:
    rows = torch.randn(5, 96)
    rows[2] = 0
    found = round_rows(rows)
    levels = rows.view(5, 3, 32).abs().amax(2, keepdim=True) / 127
    assert ((numbers(found) - rows).view(5, 3, 32).abs() <= 0.56 * levels + 1e-6).all()
    assert found.q[2].eq(0).all()


def test_parts_of_several_forms_become_one_weight() -> None:
    four, eight = (read_blocks(random_blocks(kind).reshape(-1), kind, ROWS) for kind in ("Q4_1", "Q8_0"))
    form = common_form([FORMS["Q4_1"], FORMS["Q8_0"]])
    assert form == Form(8, has_low=True)
    weight = pack_quants([four, eight], form)
    assert torch.equal(unpack(weight), torch.cat((numbers(four), numbers(eight))))
    assert weight.data.numel() == form.bytes(2 * ROWS, INPUTS)


def declared(path: Path) -> Declared:
    return declare_model(str(path), 64, torch.float32, selector("cpu"), OneRank(), packed=True)


@pytest.mark.parametrize("kind", ["Q4_1", "Q8_0", "F32", "folder"])
def test_a_model_keeps_what_its_checkpoint_has(tmp_path: Path, kind: str) -> None:
    """Every matrix, fused ones and turned rows among them, is what reading it as numbers gives."""
    model = random_llama(**SIZES)
    path = save_folder(model, tmp_path / "m") if kind == "folder" else save_gguf(model, tmp_path / "m.gguf", kind)
    kept = declared(path)
    parameters = dict(kept.model.parameters())
    assert parameters["model.layers.0.self_attn.qkv_proj.weight"].form == FORMS.get(kind, ROUNDED)
    kept.load(lambda phase, share: None)
    tensors = open_checkpoint(path, SIZES["head_dim"])
    names = [f"model.layers.0.self_attn.{name}_proj.weight" for name in "qkv"]
    wanted = torch.cat([tensors.read(name, 0, tensors.shapes[name][0]) for name in names]).float()
    value = parameters["model.layers.0.self_attn.qkv_proj.weight"].value
    assert not isinstance(value, torch.Tensor)
    found = unpack(value)
    tolerance = 0.0 if kind in FORMS else 0.6 * float(wanted.abs().max()) / 127
    assert (found - wanted).abs().max() <= tolerance
    floats = declare_model(str(path), 64, torch.float32, selector("cpu"), OneRank())
    assert kept.weights_bytes < floats.weights_bytes / 3
