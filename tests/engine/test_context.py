"""How long a context is served, asked for, left open, or fitted to the memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.dummies import write_shape
from tokenspeed.config import DEVICE_DEFAULTS, EngineConfig
from tokenspeed.engine import context
from tokenspeed.engine.context import context_tokens, needed_bytes
from tokenspeed.engine.memory import gpu_memory
from tokenspeed.errors import StartError
from tokenspeed.formats.checkpoint import Checkpoint, describe

CPU = DEVICE_DEFAULTS["cpu"]


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    return describe(write_shape(tmp_path), dummy=True)


def tokens(checkpoint: Checkpoint, asked: Any, **settings: Any) -> int:
    return context_tokens(EngineConfig(max_model_len=asked, **settings), checkpoint, CPU)


def test_asked_for_or_the_model_s_own(checkpoint: Checkpoint) -> None:
    assert tokens(checkpoint, None) == checkpoint.context_default
    assert [tokens(checkpoint, length) for length in (2, checkpoint.max_position)] == [2, checkpoint.max_position]
    for length in (1, checkpoint.max_position + 1):
        with pytest.raises(StartError, match=rf"max_model_len is {length}; .* allows 2 to .*hf_overrides .*rope_sca"):
            tokens(checkpoint, length)
    with pytest.raises(StartError, match="max_model_len is 'long'; a number of tokens or 'auto'"):
        tokens(checkpoint, "long")


def test_a_window_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    mistral = {"architectures": ["MistralForCausalLM"], "model_type": "mistral", "sliding_window": 64}
    checkpoint = describe(write_shape(tmp_path, **mistral), dummy=True)
    assert tokens(checkpoint, None) == 64
    assert "looks back 64 tokens (sliding_window); longer contexts are not computed here" in caplog.text
    with pytest.raises(StartError, match="allows 2 to 64, its sliding_window: attention over a window is not computed"):
        tokens(checkpoint, 65)


def test_auto_takes_what_memory_has_room_for(checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    page = checkpoint.kv_elements_per_token * 4 * CPU.page_tokens
    taken = needed_bytes(checkpoint, CPU)
    left = 1 << 50

    def allowed(device: str, share: float) -> int:
        return taken + left

    monkeypatch.setattr(context, "bytes_allowed", allowed)
    assert tokens(checkpoint, "auto") == checkpoint.context_default
    assert tokens(checkpoint, "auto", kv_cache_bytes=3 * page) == 2 * CPU.page_tokens
    left = 5 * page - 1
    assert tokens(checkpoint, "auto") == 3 * CPU.page_tokens
    left = page
    with pytest.raises(StartError, match="No memory is left for a context"):
        tokens(checkpoint, "auto")


def test_a_larger_checkpoint_or_step_needs_more(checkpoint: Checkpoint) -> None:
    """Of a real model of 8 billion parameters, most of what is needed are its weights."""
    large = {"layers": 32, "hidden": 4096, "intermediate": 14336, "heads": 32, "kv_heads": 8}
    model = msgspec.structs.replace(checkpoint, **large, head_dim=128, vocab_tokens=128256)
    needed = needed_bytes(model, DEVICE_DEFAULTS["cuda"])
    assert 17e9 < needed < 20e9
    read = msgspec.structs.replace(model, parameters=8_030_000_000)
    assert abs(needed_bytes(read, DEVICE_DEFAULTS["cuda"]) - needed) < 1e8


def test_no_driver_tells_nothing() -> None:
    assert gpu_memory("0", "libabsent.so.1") is None
    assert gpu_memory("0", "libc.so.6") is None
