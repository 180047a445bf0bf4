"""Which device is chosen, and what follows from it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tokenspeed.config import DEVICE_DEFAULTS, EngineConfig
from tokenspeed.engine import device
from tokenspeed.engine.device import device_settings, gpu_fault
from tokenspeed.errors import StartError

LIBRARY_THAT_LOADS = "libc.so.6"


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that stands for a device node, and an environment that hides nothing."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    path = tmp_path / "nvidiactl"
    path.touch()
    return path


def pretend(monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    monkeypatch.setattr(device, "gpu_fault", lambda: fault)


def test_a_node_and_a_library_make_a_gpu(node: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert gpu_fault([tmp_path / "absent", node], LIBRARY_THAT_LOADS) == ""
    assert "absent" in gpu_fault([tmp_path / "absent"], LIBRARY_THAT_LOADS)
    assert "libnothing.so.1 cannot be loaded" in gpu_fault([node], "libnothing.so.1")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert "CUDA_VISIBLE_DEVICES" in gpu_fault([node], LIBRARY_THAT_LOADS)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert gpu_fault([node], LIBRARY_THAT_LOADS) == ""


@pytest.mark.parametrize(
    ("asked", "fault", "chosen"), [("auto", "", "cuda"), ("auto", "no node", "cpu"), ("cpu", "", "cpu")]
)
def test_auto_takes_a_gpu_if_there_is_one(asked: str, fault: str, chosen: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, fault)
    assert device_settings(EngineConfig(device=asked)) == DEVICE_DEFAULTS[chosen]


def test_what_is_asked_overrides_the_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, "")
    settings = device_settings(EngineConfig(dtype="float32", max_num_seqs=7, mixed_prefill_size=9))
    assert (settings.name, settings.dtype, settings.page_tokens) == ("cuda", "float32", 64)
    assert (settings.max_num_seqs, settings.chunked_prefill_size, settings.mixed_prefill_size) == (7, 8192, 9)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (EngineConfig(device="cuda"), "no NVIDIA GPU: no node. Install"),
        (EngineConfig(device="tpu"), "'tpu'; auto, cpu and cuda are allowed"),
        (EngineConfig(device="cpu", dtype="half"), "dtype is 'float16', whose numbers end at 65504"),
        (EngineConfig(device="cpu", dtype="bfloat16"), "the CPU executor computes in 'int8' and 'float32' only"),
        (EngineConfig(dtype="float16"), "'float16'"),
    ],
)
def test_what_cannot_be_is_refused(config: EngineConfig, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, "no node")
    with pytest.raises(StartError) as caught:
        device_settings(config)
    assert words in caught.value.message
