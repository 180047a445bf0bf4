"""Names on the Hub, the files that they mean, and what is said when they cannot be had."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.formats.fake_hub import SHA, FakeHub, fake_hub
from tokenspeed.errors import StartError
from tokenspeed.formats.hub import fetch
from tokenspeed.formats.hub_name import HubName, hub_name, needed_files

FOLDER = ["README.md", "config.json", "tokenizer.json", "model.safetensors", "pytorch_model.bin", "onnx/model.onnx"]
GGUFS = ["README.md", "m-Q4_K_M.gguf", "m-Q4_K_S.gguf", "m.Q8_0.gguf", "BF16/m-BF16.gguf", "mmproj-m-Q8_0.gguf"]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Qwen/Qwen3-0.6B", HubName("Qwen/Qwen3-0.6B")),
        ("org/name:Q4_K_M", HubName("org/name", quant="Q4_K_M")),
        ("org/name/sub/m.gguf", HubName("org/name", file="sub/m.gguf")),
        *((path, None) for path in ("name", "./org/name", "/org/name", "~/name", "models/m.gguf", "a/b/c", "a/b.bin")),
    ],
)
def test_names(text: str, name: HubName | None) -> None:
    assert hub_name(text) == name


@pytest.mark.parametrize(
    ("name", "files", "load_format", "needed"),
    [
        ("o/n", FOLDER, "auto", ["config.json", "tokenizer.json", "model.safetensors"]),
        ("o/n", FOLDER, "dummy", ["config.json", "tokenizer.json"]),
        ("o/n", ["consolidated.safetensors", "model-1.safetensors"], "auto", ["model-1.safetensors"]),
        ("o/n", ["a.safetensors", "sub/b.safetensors", "m.gguf"], "auto", ["a.safetensors"]),
        ("o/n", ["a.safetensors", "m.gguf"], "gguf", ["m.gguf"]),
        ("o/n", ["m.gguf"], "auto", ["m.gguf"]),
        ("o/n:q4_k_m", GGUFS, "auto", ["m-Q4_K_M.gguf"]),
        ("o/n:Q8_0", GGUFS, "auto", ["m.Q8_0.gguf"]),
        ("o/n:BF16", GGUFS, "auto", ["BF16/m-BF16.gguf"]),
        ("o/n/m.Q8_0.gguf", GGUFS, "auto", ["m.Q8_0.gguf"]),
    ],
)
def test_needed_files(name: str, files: list[str], load_format: str, needed: list[str]) -> None:
    assert needed_files(hub_name(name) or HubName(""), files, load_format) == needed


@pytest.mark.parametrize(
    ("name", "files", "message"),
    [
        ("o/n", GGUFS, r"o/n holds 4 \.gguf files; give one of them: o/n/m-Q4_K_M\.gguf, "),
        ("o/n:Q4_K", GGUFS, r"o/n has no one file for Q4_K; give one of them"),
        ("o/n:Q9", FOLDER, r"o/n holds no \.gguf file \(seen: README\.md"),
        ("o/n", ["pytorch_model.bin"], "only pickled weights"),
        ("o/n", ["README.md"], r"no weights that can be read \(seen: README\.md\)"),
        ("o/n:F16", [f"m-F16-0000{i}-of-00002.gguf" for i in (1, 2)], r"in 2 parts; download and join them"),
    ],
)
def test_refused_choices(name: str, files: list[str], message: str) -> None:
    with pytest.raises(StartError, match=message):
        needed_files(hub_name(name) or HubName(""), files, "auto")


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    """Return a Hub that the library talks to, with an empty cache; other tests' environment is not seen."""
    files = {name: name.encode() * 1000 for name in FOLDER}
    with fake_hub({"o/n": files, "o/g": {name: name.encode() for name in GGUFS}}) as hub:
        constants = {
            "ENDPOINT": hub.url,
            "HUGGINGFACE_CO_URL_TEMPLATE": hub.url + "/{repo_id}/resolve/{revision}/{filename}",
            "HF_HUB_CACHE": str(tmp_path),
            "HF_HUB_OFFLINE": False,
            "HF_TOKEN_PATH": str(tmp_path / "token"),
        }
        for name, value in constants.items():
            monkeypatch.setattr(f"huggingface_hub.constants.{name}", value)
        monkeypatch.delenv("HF_TOKEN", raising=False)
        yield hub


def _fetch(text: str, revision: str | None = None) -> Path:
    name = hub_name(text)
    assert name is not None
    return fetch(name, revision, "auto", lambda done, total: None)


def test_only_needed_files_are_downloaded_and_only_once(hub: FakeHub, tmp_path: Path) -> None:
    heard: list[tuple[int, int]] = []
    folder = fetch(HubName("o/n"), None, "auto", lambda done, total: heard.append((done, total)))
    needed = ["config.json", "model.safetensors", "tokenizer.json"]
    assert sorted(hub.served) == needed
    assert sorted(path.name for path in folder.iterdir()) == needed
    assert (folder / "config.json").read_bytes() == b"config.json" * 1000
    bytes_total = sum(len(name) * 1000 for name in needed)
    assert heard[-1] == (bytes_total, bytes_total)
    assert all(done <= total for done, total in heard)
    assert _fetch("o/n", "v1") == folder
    assert sorted(hub.served) == needed
    assert _fetch("o/g:Q4_K_S").read_bytes() == b"m-Q4_K_S.gguf"


def test_the_cache_serves_when_the_hub_does_not(
    hub: FakeHub, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    found = _fetch("o/n"), _fetch("o/g:Q8_0")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert (_fetch("o/n"), _fetch("o/g:Q8_0")) == found
    with pytest.raises(StartError, match=r"o/absent is not in the cache .*HF_HUB_OFFLINE is set"):
        _fetch("o/absent")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    assert _fetch("o/n") == found[0]
    assert "The Hub does not answer (ConnectError" in caplog.text
    with pytest.raises(StartError, match=r"o/absent is no file or folder here .*127.0.0.1:9 cannot be reached"):
        _fetch("o/absent")


def test_every_refusal_of_the_hub_has_one_clear_message(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.gated.add("o/g")
    with pytest.raises(StartError, match=r"o/absent is neither a file or folder here nor a model that .* shows"):
        _fetch("o/absent")
    with pytest.raises(StartError, match="o/n has no revision v9"):
        _fetch("o/n", "v9")
    with pytest.raises(StartError, match=r"o/g is gated: accept its terms at .*/o/g, .* HF_TOKEN"):
        _fetch("o/g:Q8_0")
    with pytest.raises(StartError, match="nor a name that the Hub allows"):
        _fetch("o/a--b..c")
    monkeypatch.setenv("HF_TOKEN", hub.token)
    assert _fetch("o/g:Q8_0").read_bytes() == b"m.Q8_0.gguf"


def test_the_environment_is_the_library_s(hub: FakeHub, tmp_path: Path) -> None:
    """HF_ENDPOINT, HF_HOME and HF_TOKEN are read by a process of its own."""
    hub.gated.add("o/n")
    code = (
        "from tokenspeed.formats.hub import fetch\n"
        "from tokenspeed.formats.hub_name import HubName\n"
        "print(fetch(HubName('o/n'), None, 'dummy', lambda done, total: None))\n"
    )
    own = {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "home"), "HF_TOKEN": hub.token, "HF_HUB_OFFLINE": "0"}
    run = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **own}, check=True, timeout=60, capture_output=True, text=True
    )
    assert run.stdout.strip() == str(tmp_path / "home" / "hub" / "models--o--n" / "snapshots" / SHA)
