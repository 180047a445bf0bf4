"""Which weights a path means, and what is said when it means none."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.formats.gguf_files import GgufBytes
from tokenspeed.errors import StartError
from tokenspeed.formats.location import weights_path


def fill(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).write_bytes(b"")
    return folder


def test_a_folder_of_safetensors(tmp_path: Path) -> None:
    assert weights_path(fill(tmp_path, "model.safetensors", "x.gguf", "pytorch_model.bin")) == tmp_path


def test_a_folder_with_only_an_index(tmp_path: Path) -> None:
    assert weights_path(fill(tmp_path, "model.safetensors.index.json")) == tmp_path


def test_gguf_by_name_by_content_and_in_a_folder(tmp_path: Path) -> None:
    named = GgufBytes().write(tmp_path / "a.gguf")
    assert weights_path(str(named)) == weights_path(tmp_path) == named
    unnamed = GgufBytes().write(tmp_path / "blob")
    assert weights_path(unnamed) == unnamed


def test_home_is_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    fill(tmp_path, "model.safetensors")
    assert weights_path("~") == tmp_path


def test_refusals(tmp_path: Path) -> None:
    fill(tmp_path, "w.safetensors", "w.bin", "w.pt", "w.txt")
    cases = {
        "absent.gguf": "does not exist; give a folder with config.json",
        "org/model": "or the name of a model on the Hugging Face Hub",
        str(tmp_path / "a" / "b"): "does not exist; give",
        str(tmp_path / "w.safetensors"): f"give the folder .*{tmp_path}",
        str(tmp_path / "w.bin"): "pickled weights.*safe_serialization",
        str(tmp_path / "w.pt"): "pickled weights",
        str(tmp_path / "w.txt"): "no checkpoint that can be read",
    }
    os.mkfifo(tmp_path / "pipe.gguf")
    cases[str(tmp_path / "pipe.gguf")] = "neither a file nor a folder; give"
    cases["x" * 5000] = "cannot be read: File name too long"
    for path, message in cases.items():
        with pytest.raises(StartError, match=message):
            weights_path(path)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ([], "is empty; give a folder"),
        ([".hidden"], "is empty"),
        (["config.json", "README.md"], r"holds no weights \(seen: README\.md, config\.json\)"),
        (
            ["pytorch_model.bin", "config.json"],
            r"only pickled weights \(pytorch_model\.bin\).*refused.*save_pretrained",
        ),
        (["a.gguf", "b.gguf"], r"holds 2 \.gguf files; give one of them: a\.gguf, b\.gguf"),
    ],
)
def test_refused_folders(tmp_path: Path, names: list[str], message: str) -> None:
    with pytest.raises(StartError, match=message):
        weights_path(fill(tmp_path, *names))


def test_dummy_weights_need_a_config_alone(tmp_path: Path) -> None:
    assert weights_path(fill(tmp_path, "config.json"), dummy=True) == tmp_path
    named = tmp_path / "a.gguf"
    named.touch()
    assert weights_path(named, dummy=True) == named
    (tmp_path / "config.json").unlink()
    named.unlink()
    with pytest.raises(StartError, match="is empty"):
        weights_path(tmp_path, dummy=True)
