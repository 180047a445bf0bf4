"""What exists here wins; a name on the Hub is downloaded."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.dummies import write_shape
from tests.formats.gguf_files import GgufBytes, Tensor, llama_keys
from tokenspeed.config import EngineConfig
from tokenspeed.engine.launch import resolve
from tokenspeed.engine.locate import locate
from tokenspeed.errors import StartError
from tokenspeed.formats.hub_name import HubName


def test_a_folder_here_goes_before_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "org" / "name").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert locate(EngineConfig(model="org/name"), lambda text: None) == (Path("org/name"), "")
    with pytest.raises(StartError, match="revision is 'v1', and org/name is no name on the Hub"):
        locate(EngineConfig(model="org/name", revision="v1"), lambda text: None)
    assert locate(EngineConfig(model="x" * 5000), lambda text: None)[1] == ""


def test_a_model_of_the_hub_keeps_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[HubName, str | None, str]] = []
    heard: list[str] = []

    def fetch(name: HubName, revision: str | None, load_format: str, progress: Callable[[int, int], None]) -> Path:
        asked.append((name, revision, load_format))
        for done in (5_000_000, 5_000_001, 20_000_000):
            progress(done, 20_000_000)
        return write_shape(tmp_path)

    monkeypatch.setattr("tokenspeed.formats.hub.fetch", fetch)
    config = EngineConfig(model="org/name", revision="v1", load_format="dummy")
    checkpoint, model, _ = resolve(config, heard.append)
    assert (model.served_name, model.path, checkpoint.path) == ("org/name", str(tmp_path), tmp_path)
    assert asked == [(HubName("org/name"), "v1", "dummy")]
    assert heard == ["download org/name 25% of 20 MB", "download org/name 100% of 20 MB"]


def test_a_format_that_was_asked_for_is_held_to(tmp_path: Path) -> None:
    with pytest.raises(StartError, match="load_format is 'pickle'; auto, safetensors, gguf, dummy are allowed"):
        resolve(EngineConfig(model=str(tmp_path), load_format="pickle"))
    path = GgufBytes(llama_keys(), [Tensor("w", (32, 4))], bytes(512)).write(tmp_path / "m.gguf")
    with pytest.raises(StartError, match=r"m\.gguf is gguf, and load_format is safetensors: choose auto"):
        resolve(EngineConfig(model=str(path), load_format="safetensors", device="cpu"))
    assert resolve(EngineConfig(model=str(path), load_format="gguf", device="cpu"))[0].kind == "gguf"
