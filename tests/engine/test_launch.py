"""From settings to the structs of the actors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.dummies import write_shape
from tokenspeed.config import EngineConfig, ExecutorConfig, SchedulerConfig
from tokenspeed.engine import device
from tokenspeed.engine.context import kv_bytes_per_token
from tokenspeed.engine.launch import actor_specs, resolve
from tokenspeed.errors import StartError
from tokenspeed.formats.checkpoint import describe


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_shape(tmp_path)


def settings_of(folder: Path, **settings: Any) -> dict[str, Any]:
    """Return the settings struct of each actor, by its name."""
    config = EngineConfig(model=str(folder), load_format="dummy", **settings)
    return {spec.name: spec.config for spec in actor_specs(config, *resolve(config))}


def test_the_gpu_gets_its_page_size_and_takes_what_is_left(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "gpu_fault", lambda: "")
    monkeypatch.setattr(device, "torch_fault", lambda: "")
    parts = settings_of(folder, gpu_memory_utilization=0.5)
    executor: ExecutorConfig = parts["executor"]
    assert (executor.device, executor.page_tokens, executor.max_num_seqs) == ("cuda", 64, 128)
    assert (executor.kv_cache_bytes, executor.gpu_memory_utilization) == (0, 0.5)
    assert (executor.model.dtype, executor.model.load_format) == ("bfloat16", "dummy")
    scheduler: SchedulerConfig = parts["scheduler"]
    assert (scheduler.max_num_seqs, scheduler.chunked_prefill_size, scheduler.mixed_prefill_size) == (128, 8192, 2048)
    assert all(part.model == executor.model for name, part in parts.items() if name != "scheduler")


def test_a_cache_too_small_for_one_context_is_refused_by_the_device_s_sizes(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token_bytes = kv_bytes_per_token(describe(folder, dummy=True), "bfloat16")
    assert token_bytes * 2 == kv_bytes_per_token(describe(folder, dummy=True), "float32")
    monkeypatch.setattr(device, "gpu_fault", lambda: "")
    monkeypatch.setattr(device, "torch_fault", lambda: "")
    needed = (1 + 2) * 64 * token_bytes  # the padding page, and 100 tokens in pages of 64
    assert settings_of(folder, max_model_len=100, kv_cache_bytes=needed)["executor"].kv_cache_bytes == needed
    with pytest.raises(StartError, match=f"at least {needed} bytes, or set max_model_len to at most 64"):
        settings_of(folder, max_model_len=100, kv_cache_bytes=needed - 1)


def test_dummy_weights_are_asked_for_and_not_guessed(folder: Path) -> None:
    with pytest.raises(StartError, match="holds no weights"):
        resolve(EngineConfig(model=str(folder)))
