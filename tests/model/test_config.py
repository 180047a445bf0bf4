"""Shapes from both descriptions, and refusals that name the setting."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.tiny import demo_path
from tokenspeed.errors import StartError
from tokenspeed.formats.gguf import GgufFile, read_gguf
from tokenspeed.model.config import read_shape
from tokenspeed.model.config_gguf import shape_of_gguf
from tokenspeed.model.shape import ModelShape, RopeShape, check_window

CONFIG: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 128,
    "vocab_size": 100,
    "rms_norm_eps": 1e-6,
    "max_position_embeddings": 512,
}
LLAMA3 = {
    "factor": 32.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


def _folder(path: Path, **changes: Any) -> Path:
    config = {name: value for name, value in {**CONFIG, **changes}.items() if value is not ...}
    (path / "config.json").write_text(json.dumps(config))
    (path / "model.safetensors").write_bytes(b"")
    return path


def test_demo_shape() -> None:
    """The demo model is SmolLM2-135M."""
    shape = read_shape(demo_path())
    assert shape.norm_eps == pytest.approx(1e-5, rel=1e-6)
    assert shape == ModelShape(
        architecture="llama",
        hidden=576,
        layers=30,
        heads=9,
        kv_heads=3,
        head_dim=64,
        intermediate=1536,
        vocab=49152,
        norm_eps=shape.norm_eps,
        rope=RopeShape(theta=100000.0),
        tied=True,
        max_position=8192,
    )


def test_defaults_of_a_folder(tmp_path: Path) -> None:
    """Without head_dim, KV heads and rope, the heads share the hidden size."""
    shape = read_shape(_folder(tmp_path, num_key_value_heads=...))
    assert (shape.head_dim, shape.kv_heads, shape.rope, shape.tied) == (16, 4, RopeShape(theta=10000.0), False)


@pytest.mark.parametrize(
    "settings",
    [
        {"rope_theta": 5e5, "rope_scaling": {"rope_type": "llama3", **LLAMA3}},
        {"rope_theta": 5e5, "rope_scaling": {"type": "llama3", **LLAMA3}},
        {"rope_parameters": {"rope_theta": 5e5, "rope_type": "llama3", **LLAMA3}},
    ],
    ids=["scaling", "older_scaling", "parameters"],
)
def test_rope_spellings_mean_the_same(settings: dict[str, Any], tmp_path: Path) -> None:
    """Three generations of config.json say the same rope."""
    assert read_shape(_folder(tmp_path, **settings)).rope == RopeShape(
        theta=5e5, kind="llama3", factor=32.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position=8192
    )


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model_type": "mamba"}, "model_type is mamba; llama"),
        ({"hidden_act": "gelu"}, "hidden_act is gelu; silu"),
        ({"attention_bias": True}, "attention_bias is True"),
        ({"mlp_bias": True}, "mlp_bias is True"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor is 0.5"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "rope type is yarn"),
        ({"rope_scaling": {"rope_type": "linear"}}, "rope setting factor is None"),
        ({"rope_scaling": {"rope_type": "linear", "factor": "4"}}, "rope setting factor is '4'"),
        ({"num_key_value_heads": 3}, "4 attention heads do not divide among 3"),
        ({"head_dim": 7}, "head_dim is 7"),
        ({"num_hidden_layers": 0}, "layers is 0"),
        ({"num_attention_heads": 0}, "num_attention_heads is 0"),
        ({"vocab_size": ...}, "vocab_size"),
        ({"vocab_size": "many"}, "vocab_size"),
    ],
)
def test_refused_configurations(changes: dict[str, Any], words: str, tmp_path: Path) -> None:
    """What cannot be computed is refused by name."""
    with pytest.raises(StartError) as caught:
        read_shape(_folder(tmp_path, **changes))
    assert words in caught.value.message


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"general.architecture": "qwen2"}, "architecture qwen2"),
        ({"llama.expert_count": 8}, "llama.expert_count is 8"),
        ({"llama.attention.sliding_window": 4096}, "llama.attention.sliding_window is 4096"),
        ({"llama.rope.dimension_count": 32}, "rope turns 32 of 64 dimensions"),
        ({"llama.rope.scaling.type": "yarn"}, "scales rope by yarn"),
    ],
)
def test_refused_gguf_files(changes: dict[str, Any], words: str) -> None:
    """The same goes for GGUF metadata."""
    file = read_gguf(demo_path())
    changed = GgufFile(file.path, {**file.metadata, **changes}, file.tensors)
    with pytest.raises(StartError) as caught:
        shape_of_gguf(changed)
    assert words in caught.value.message


def test_folder_without_configuration(tmp_path: Path) -> None:
    """Weights alone are not enough."""
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(StartError, match=r"config\.json cannot be read"):
        read_shape(tmp_path)
