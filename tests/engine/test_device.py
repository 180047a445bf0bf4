"""Which device is chosen, and what follows from it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tokenspeed_kernels.attention.rows import DECODE_ROWS_MAX

from tokenspeed.config import DEVICE_DEFAULTS, EngineConfig
from tokenspeed.engine import device
from tokenspeed.engine.device import device_settings, gpu_fault, torch_fault
from tokenspeed.errors import StartError

LIBRARY_THAT_LOADS = "libc.so.6"


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that stands for a device node, and an environment that hides nothing."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    path = tmp_path / "nvidiactl"
    path.touch()
    return path


def pretend(monkeypatch: pytest.MonkeyPatch, fault: str, unfit: str = "") -> None:
    monkeypatch.setattr(device, "gpu_fault", lambda: fault)
    monkeypatch.setattr(device, "torch_fault", lambda: unfit)


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


def test_torch_says_what_it_is_built_for(tmp_path: Path) -> None:
    version = tmp_path / "version.py"
    assert torch_fault(version) == ""
    version.write_text("__version__ = '2.13.0+cpu'\ncuda = None\n")
    assert torch_fault(version) == "torch 2.13.0+cpu is built without CUDA"
    version.write_text("__version__ = '2.13.0+cu130'\ncuda = '13.0'\n")
    assert torch_fault(version) == ""
    assert bool(torch_fault()) == (torch.version.cuda is None)


def test_auto_leaves_a_gpu_that_torch_cannot_use(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One line says so; who asks for the GPU by name is told why not."""
    pretend(monkeypatch, "", "torch 9 is built without CUDA")
    assert device_settings(EngineConfig()) == DEVICE_DEFAULTS["cpu"]
    assert "but torch 9 is built without CUDA: the CPU computes" in caplog.text
    with pytest.raises(StartError, match=r"'cuda', and torch 9 is built without CUDA\. Install"):
        device_settings(EngineConfig(device="cuda"))


def test_a_batch_is_no_larger_than_the_kernels_take(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, "")
    assert device_settings(EngineConfig(max_num_seqs=DECODE_ROWS_MAX)).max_num_seqs == DECODE_ROWS_MAX
    with pytest.raises(StartError, match="max_num_seqs is 1025; the GPU executor takes 1 to 1024"):
        device_settings(EngineConfig(max_num_seqs=DECODE_ROWS_MAX + 1))
    with pytest.raises(StartError, match="max_num_seqs is 0; the CPU executor takes 1 to 4096"):
        device_settings(EngineConfig(device="cpu", max_num_seqs=0))


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
