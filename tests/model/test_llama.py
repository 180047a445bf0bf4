"""Logits of random Llamas and their kin against transformers, from both kinds of checkpoint."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, quants
from tokenspeed_kernels import selector
from tokenspeed_kernels.attention import AttentionRows

from tests.conftest import Record
from tests.llamas import LLAMA3_ROPE, SIZES, YARN_ROPE, gguf_type, random_llama, random_model, save_folder, save_gguf
from tests.reference import transformers_model
from tests.tiny import demo_path
from tokenspeed.executor.pools import PagePool, PageShape
from tokenspeed.executor.ranks import join_group
from tokenspeed.model.build import declare_model
from tokenspeed.model.layers import ForwardStep

VARIANTS: dict[str, dict[str, Any]] = {
    "grouped": {},
    "tied": {"tie_word_embeddings": True},
    "one_key_head": {"num_key_value_heads": 1},
    "every_head_its_own": {"num_key_value_heads": 4},
    "odd_sizes": {"hidden_size": 60, "head_dim": 10, "num_attention_heads": 6, "intermediate_size": 77},
    "linear_rope": {"rope_parameters": {"rope_type": "linear", "rope_theta": 500.0, "factor": 4.0}},
    "llama3_rope": {"rope_parameters": LLAMA3_ROPE},
    "yarn_rope": {"rope_parameters": YARN_ROPE},
    "attention_bias": {"attention_bias": True},
    "biases_everywhere": {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True},
}
KIN: dict[str, tuple[str, dict[str, Any]]] = {
    "mistral": ("Mistral", {"sliding_window": None}),
    "mistral_whose_window_hides_nothing": ("Mistral", {"sliding_window": 256}),
    "qwen2": ("Qwen2", {}),
    "qwen2_tied": ("Qwen2", {"tie_word_embeddings": True, "rope_parameters": YARN_ROPE}),
    "qwen2_whose_window_is_off": ("Qwen2", {"sliding_window": 8, "max_window_layers": 0}),
    "qwen3": ("Qwen3", {}),
    "qwen3_tied_with_bias": ("Qwen3", {"tie_word_embeddings": True, "attention_bias": True}),
    "qwen3_wide_heads": ("Qwen3", {"head_dim": 16, "num_key_value_heads": 1, "rope_parameters": YARN_ROPE}),
}
ROPES: dict[str, dict[str, Any]] = {
    "default": {"rope_type": "default", "rope_theta": 500.0},
    "linear": {"rope_type": "linear", "rope_theta": 500.0, "factor": 4.0},
    "dynamic": {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 3.0},
    "llama3": LLAMA3_ROPE,
    "yarn": YARN_ROPE,
}
# What the gguf package can write.
WRITABLE = ["F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "TQ1_0", "TQ2_0", "MXFP4"]
IDS = torch.randint(0, SIZES["vocab_size"], (150,), generator=torch.Generator().manual_seed(5))
PAGE_TOKENS = 16


@pytest.mark.parametrize("writer", [save_folder, save_gguf])
@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS)
def test_logits_equal_transformers(changes: dict[str, Any], writer: Any, tmp_path: Path) -> None:
    """One shot, in chunks, and id by id: always the logits of transformers."""
    model = random_llama(**changes)
    with torch.inference_mode():
        wanted = model(IDS[None]).logits[0]
    path = writer(model, tmp_path / "checkpoint")
    for cuts in ([150], [64, 64, 22], [1, 16, 17, 31, 85], [140] + [1] * 10):
        torch.testing.assert_close(_logits(path, cuts), wanted, rtol=0, atol=1e-4)


@pytest.mark.parametrize("writer", [save_folder, save_gguf])
@pytest.mark.parametrize(("family", "changes"), KIN.values(), ids=KIN)
def test_logits_of_kin_equal_transformers(family: str, changes: dict[str, Any], writer: Any, tmp_path: Path) -> None:
    """Mistral, Qwen2 and Qwen3 too, at once and in chunks."""
    model = random_model(family, **changes)
    with torch.inference_mode():
        wanted = model(IDS[None]).logits[0]
    path = writer(model, tmp_path / "checkpoint")
    for cuts in ([150], [64, 1, 85]):
        torch.testing.assert_close(_logits(path, cuts), wanted, rtol=0, atol=1e-4)


@pytest.mark.parametrize("rope", ROPES.values(), ids=ROPES)
@pytest.mark.parametrize("family", ["Llama", "Mistral", "Qwen2", "Qwen3"])
def test_every_rope_of_every_family(family: str, rope: dict[str, Any], tmp_path: Path) -> None:
    """Written with the keys that transformers writes today, and again with those of older files."""
    model = random_model(family, num_hidden_layers=2, sliding_window=None, rope_parameters=dict(rope))
    with torch.inference_mode():
        wanted = model(IDS[None]).logits[0]
    path = save_folder(model, tmp_path / "checkpoint")
    torch.testing.assert_close(_logits(path, [150]), wanted, rtol=0, atol=1e-4)
    config = json.loads((path / "config.json").read_text())
    older = {"type" if name == "rope_type" else name: value for name, value in config.pop("rope_parameters").items()}
    config |= {"rope_theta": older.pop("rope_theta"), "rope_scaling": older if older["type"] != "default" else None}
    (path / "config.json").write_text(json.dumps(config))
    torch.testing.assert_close(_logits(path, [150]), wanted, rtol=0, atol=1e-4)


def test_dynamic_rope_is_that_of_the_longest_sequence(tmp_path: Path) -> None:
    """Transformers computes it anew for each length; ours is the one of the length that is served."""
    rope = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 3.0}
    model = random_llama(max_position_embeddings=40, rope_parameters=rope)
    with torch.inference_mode():
        wanted = model(IDS[None]).logits[0]
    path = save_folder(model, tmp_path / "checkpoint")
    torch.testing.assert_close(_logits(path, [100, 50], longest=len(IDS)), wanted, rtol=0, atol=1e-4)


@pytest.mark.parametrize("kind", WRITABLE)
def test_gguf_types_read_as_dequantised(kind: str, tmp_path: Path) -> None:
    """A GGUF of each type that can be written equals transformers running the numbers that the type can hold."""
    width = GGML_QUANT_SIZES[GGMLQuantizationType[kind]][0] // 256 * 192 + 64  # 64, or a block of 256
    model = random_llama(
        hidden_size=width, head_dim=width // 4, intermediate_size=width, num_hidden_layers=1, initializer_range=0.1
    )
    given, wanted = _through_a_file(model, kind, tmp_path)
    torch.testing.assert_close(given, wanted, rtol=0, atol=1e-4)


@pytest.mark.prove(shows="the demo model in every GGUF type that can be written: its dequantised logits", limit_s=900)
@pytest.mark.parametrize("kind", WRITABLE)
def test_the_demo_in_every_gguf_type(kind: str, tmp_path: Path, proof: Record) -> None:
    """The same with weights that mean something. No type is coarse enough to hide a block that was read wrongly."""
    given, wanted = _through_a_file(transformers_model(demo_path()), kind, tmp_path)
    error = float((given - wanted).abs().max() / wanted.abs().max())
    proof(**{f"logits_error_{kind}": error})
    assert error < 1e-4


def _through_a_file(model: Any, kind: str, folder: Path) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the logits of `model` written as `kind` and read again, and those of the numbers that were written."""
    path = save_gguf(model, folder / "checkpoint", kind)
    with torch.inference_mode():
        for weight in model.parameters():
            number = gguf_type(weight.shape, kind)
            # Rows change places between the two formats, and no block spans two rows.
            weight.copy_(torch.from_numpy(quants.dequantize(quants.quantize(weight.numpy(), number), number)))
        wanted = model(IDS[None]).logits[0]
    return _logits(path, [150]), wanted


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_safetensors_types_widen(dtype: torch.dtype, tmp_path: Path) -> None:
    """Half-precision folders are computed in float32."""
    model = random_llama()
    path = save_folder(random_llama().to(dtype), tmp_path / "checkpoint")
    with torch.inference_mode():
        for weight in model.parameters():
            weight.copy_(weight.to(dtype))
        wanted = model(IDS[None]).logits[0]
    torch.testing.assert_close(_logits(path, [150]), wanted, rtol=0, atol=1e-4)


def test_reference_attention_computes_the_same(tmp_path: Path) -> None:
    """The kernel that is written to be read, chosen by an override, gives the same logits."""
    path = save_folder(random_llama(), tmp_path / "checkpoint")
    fast = _logits(path, [100, 50])
    torch.testing.assert_close(_logits(path, [100, 50], {"attention": "reference"}), fast, rtol=0, atol=1e-4)


def _logits(path: Path, cuts: list[int], kernels: dict[str, str] | None = None, longest: int = 256) -> torch.Tensor:
    """Run `IDS` in pieces of `cuts` through scattered pages; return the logits of every position."""
    declared = declare_model(
        str(path), longest, torch.float32, selector("cpu", config=kernels), join_group(0, 1, rendezvous="")
    )
    model = declared.load(lambda phase, share: None)
    shape = declared.shape
    pool = PagePool(PageShape(shape.layers, PAGE_TOKENS, shape.kv_heads, shape.head_dim, torch.float32), 32)
    table = torch.randperm(31, generator=torch.Generator().manual_seed(1))[:10] + 1
    logits = []
    done = 0
    for count in cuts:
        positions = torch.arange(done, done + count)
        places = table[positions // PAGE_TOKENS] * PAGE_TOKENS + positions % PAGE_TOKENS
        rows = AttentionRows(torch.tensor([count]), torch.tensor([done]), table[None])
        with torch.inference_mode():
            step = ForwardStep(IDS[done : done + count], positions, places, rows)
            logits.append(model.logits(model(step, pool.layers)))
        done += count
    return torch.cat(logits)
