"""Shapes from both descriptions, and refusals that name the setting."""

from __future__ import annotations

import json
import math
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
        ({"model_type": "mamba"}, "model_type is mamba; llama, mistral, qwen2, qwen3"),
        ({"hidden_act": "gelu"}, "hidden_act is gelu; silu"),
        ({"model_type": "mistral", "attention_bias": True}, "attention_bias is True; False is supported here for mis"),
        ({"model_type": "qwen3", "mlp_bias": True}, "mlp_bias is True"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor is 0.5"),
        ({"rope_parameters": {"partial_rotary_factor": 0.5}}, "partial_rotary_factor is 0.5"),
        ({"rope_scaling": {"rope_type": "longrope"}}, "rope type is longrope; default, linear, dynamic, llama3"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 0.5}}, "rope setting factor is 0.5"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4, "beta_slow": 64}}, "beta_slow and beta_fast are 64.0"),
        ({"rope_scaling": {"rope_type": "llama3", **LLAMA3, "low_freq_factor": 4}}, "low_freq_factor and"),
        ({"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}, "head_dim": 2}, "head_dim is 2; dynamic rope"),
        ({"rope_theta": 1}, "rope_theta is 1.0"),
        ({"model_type": "mistral", "sliding_window": -1}, "sliding_window is -1"),
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
        ({"general.architecture": "mamba"}, "architecture mamba; supported here: llama, qwen2, qwen3"),
        ({"llama.expert_count": 8}, "llama.expert_count is 8"),
        ({"llama.rope.dimension_count": 32}, "rope turns 32 of 64 dimensions"),
        ({"llama.rope.scaling.type": "longrope"}, "scales rope by longrope; none, linear and yarn"),
        ({"llama.rope.scaling.type": "yarn"}, "llama.rope.scaling.factor"),
        (
            {"llama.rope.scaling.type": "yarn", "llama.rope.scaling.yarn_log_multiplier": 0.1},
            "llama.rope.scaling.yarn_log_multiplier is set",
        ),
    ],
)
def test_refused_gguf_files(changes: dict[str, Any], words: str) -> None:
    """The same goes for GGUF metadata."""
    file = read_gguf(demo_path())
    changed = GgufFile(file.path, {**file.metadata, **changes}, file.tensors)
    with pytest.raises(StartError) as caught:
        shape_of_gguf(changed)
    assert words in caught.value.message


def test_yarn_of_a_gguf_file() -> None:
    """The file's own attention factor comes on top of the published one."""
    file = read_gguf(demo_path())
    scaling = {
        "type": "yarn",
        "factor": 4.0,
        "original_context_length": 2048,
        "attn_factor": 0.5,
        "yarn_beta_fast": 16.0,
    }
    metadata = {**file.metadata, **{f"llama.rope.scaling.{name}": value for name, value in scaling.items()}}
    rope = shape_of_gguf(GgufFile(file.path, metadata, file.tensors)).rope
    assert (rope.kind, rope.factor, rope.original_max_position) == ("yarn", 4.0, 2048)
    assert (rope.beta_fast, rope.beta_slow, rope.truncate) == (16.0, 1.0, True)
    assert rope.attention_factor == pytest.approx(0.5 * (1 + 0.1 * math.log(4)))


QWEN_WINDOW = {"use_sliding_window": True, "sliding_window": 64}


@pytest.mark.parametrize(
    ("changes", "window"),
    [
        ({"model_type": "llama", "sliding_window": 64}, 0),
        ({"model_type": "mistral", "sliding_window": 64}, 64),
        ({"model_type": "mistral", "sliding_window": None}, 0),
        ({"model_type": "mistral"}, 4096),
        ({"model_type": "qwen2", **QWEN_WINDOW, "use_sliding_window": False}, 0),
        ({"model_type": "qwen2", **QWEN_WINDOW, "max_window_layers": 2}, 0),
        ({"model_type": "qwen2", **QWEN_WINDOW, "max_window_layers": 1}, 64),
        ({"model_type": "qwen3", **QWEN_WINDOW, "layer_types": ["full_attention"] * 2, "max_window_layers": 0}, 0),
        ({"model_type": "qwen3", **QWEN_WINDOW, "layer_types": ["full_attention", "sliding_attention"]}, 64),
        ({"model_type": "qwen3", "use_sliding_window": True, "max_window_layers": 0}, 4096),
    ],
)
def test_windows(changes: dict[str, Any], window: int, tmp_path: Path) -> None:
    """Each architecture says in its own way whether a layer looks through a window."""
    assert read_shape(_folder(tmp_path, **changes)).window == window


def test_a_window_is_allowed_where_it_hides_nothing(tmp_path: Path) -> None:
    """With 64 positions, the last token of a window of 64 still sees the first."""
    shape = read_shape(_folder(tmp_path, model_type="mistral", sliding_window=64))
    check_window("here", shape, 64)
    with pytest.raises(StartError, match=r"here: sliding_window is 64, .* lower max_model_len to 64"):
        check_window("here", shape, 65)


def test_window_of_a_gguf_file() -> None:
    """Mistral's files say llama, and may have a window."""
    file = read_gguf(demo_path())
    changed = GgufFile(file.path, {**file.metadata, "llama.attention.sliding_window": 4096}, file.tensors)
    assert shape_of_gguf(changed).window == 4096


def test_folder_without_configuration(tmp_path: Path) -> None:
    """Weights alone are not enough."""
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(StartError, match=r"no config\.json: download it too"):
        read_shape(tmp_path)
