"""Frequencies and attention factors of every kind of rope against transformers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.llamas import LLAMA3_ROPE, SIZES, YARN_ROPE
from tokenspeed.model.config import read_shape
from tokenspeed.model.layers import Rope
from tokenspeed.model.rope import inverse_frequency

KINDS: dict[str, dict[str, Any]] = {
    "linear": {"rope_type": "linear", "rope_theta": 1e6, "factor": 2.5},
    "dynamic": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0},
    "llama3": LLAMA3_ROPE,
    "yarn": YARN_ROPE,
    "yarn_1e6": {**YARN_ROPE, "rope_theta": 1e6, "original_max_position_embeddings": 32768},
    "yarn_betas": {**YARN_ROPE, "beta_fast": 16, "beta_slow": 2},
    "yarn_not_truncated": {**YARN_ROPE, "truncate": False},
    "yarn_ramp_of_no_width": {**YARN_ROPE, "beta_fast": 2.0, "beta_slow": 2.0, "truncate": False},
    "yarn_attention_factor": {**YARN_ROPE, "attention_factor": 0.75},
    "yarn_scales": {**YARN_ROPE, "mscale": 1.0, "mscale_all_dim": 0.5},
    "yarn_of_the_longest": {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0},
}
HEAD_DIMS = [12, 64, 128]


@pytest.mark.parametrize("old_keys", [False, True])
@pytest.mark.parametrize("length", [100, 512, 2000])
@pytest.mark.parametrize("head_dim", HEAD_DIMS)
@pytest.mark.parametrize("rope", KINDS.values(), ids=KINDS)
def test_equal_to_transformers(
    rope: dict[str, Any], head_dim: int, length: int, old_keys: bool, tmp_path: Path
) -> None:
    """Old keys and new ones, shorter and longer than the model's own length."""
    from transformers import LlamaConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    sizes = {**SIZES, "head_dim": head_dim}
    config = LlamaConfig(**sizes, rope_parameters=dict(rope))
    wanted, attention_factor = ROPE_INIT_FUNCTIONS[rope["rope_type"]](config, "cpu", seq_len=length)
    (tmp_path / "config.json").write_text(json.dumps({**sizes, "model_type": "llama", **_spelled(rope, old_keys)}))
    shape = read_shape(tmp_path, dummy=True)
    torch.testing.assert_close(inverse_frequency(shape.rope, head_dim, length), wanted, rtol=1e-6, atol=0)
    assert shape.rope.attention_factor == pytest.approx(attention_factor, rel=1e-12)


def test_the_attention_factor_is_in_the_tables(tmp_path: Path) -> None:
    """Cosine and sine of position 0 are the factor itself and nothing."""
    rope = {"rope_parameters": {**YARN_ROPE, "attention_factor": 1.5}}
    (tmp_path / "config.json").write_text(json.dumps({**SIZES, "model_type": "llama", **rope}))
    turn = Rope(read_shape(tmp_path, dummy=True).rope, 12, 4)(torch.tensor([0, 3]))
    assert torch.equal(turn.cos[0], torch.full((12,), 1.5))
    assert torch.equal(turn.sin[0].abs(), torch.zeros(12))
    torch.testing.assert_close(turn.cos[1].square() + turn.sin[1].square(), torch.full((12,), 2.25))


def _spelled(rope: dict[str, Any], old_keys: bool) -> dict[str, Any]:
    if not old_keys:
        return {"rope_parameters": rope}
    scaling = {"type" if name == "rope_type" else name: value for name, value in rope.items() if name != "rope_theta"}
    return {"rope_theta": rope["rope_theta"], "rope_scaling": scaling}
