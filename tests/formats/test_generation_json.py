"""Sampling defaults of folders and GGUF files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.formats.gguf_files import F32, GgufBytes, key, scalar, u32_key
from tokenspeed.errors import StartError
from tokenspeed.formats.generation_json import read_generation_defaults
from tokenspeed.generation import GenerationDefaults

QWEN3 = {"temperature": 0.6, "top_k": 20, "top_p": 0.95, "do_sample": True, "max_new_tokens": 9, "eos_token_id": [1]}


def folder(path: Path, **settings: Any) -> Path:
    path.mkdir(exist_ok=True)
    (path / "model.safetensors").write_bytes(b"")
    (path / "generation_config.json").write_text(json.dumps(settings))
    return path


def test_a_folder_s_own(tmp_path: Path) -> None:
    """A limit on the length of replies is no default."""
    defaults = read_generation_defaults(folder(tmp_path, **QWEN3))
    assert defaults == GenerationDefaults(temperature=0.6, top_k=20, top_p=0.95, source="generation_config.json")
    assert read_generation_defaults(tmp_path, "vllm") == GenerationDefaults()
    assert read_generation_defaults(folder(tmp_path, eos_token_id=1)) == GenerationDefaults()
    (tmp_path / "generation_config.json").unlink()
    assert read_generation_defaults(tmp_path) == GenerationDefaults()


def test_those_of_another_folder(tmp_path: Path) -> None:
    other = folder(tmp_path / "other", repetition_penalty=1.05, min_p=None)
    defaults = read_generation_defaults(folder(tmp_path / "model", **QWEN3), str(other))
    assert defaults.values() == {"repetition_penalty": 1.05}
    with pytest.raises(StartError, match=r"absent, which has no generation_config\.json; give a folder, auto or vllm"):
        read_generation_defaults(tmp_path / "model", str(tmp_path / "absent"))


def test_those_of_a_gguf_file(tmp_path: Path) -> None:
    keys = [key("general.sampling.temp", F32, scalar(F32, 0.5)), u32_key("general.sampling.top_k", 40)]
    defaults = read_generation_defaults(GgufBytes(keys).write(tmp_path / "m.gguf"))
    assert defaults == GenerationDefaults(temperature=0.5, top_k=40, source="GGUF general.sampling")
    assert read_generation_defaults(GgufBytes().write(tmp_path / "m.gguf")) == GenerationDefaults()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"temperature": -1}, r"generation_config\.json: temperature is -1.*start with generation_config vllm"),
        ({"top_k": "many"}, r"generation_config\.json is damaged .*top_k"),
    ],
)
def test_values_that_no_request_could_have(tmp_path: Path, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(StartError, match=message):
        read_generation_defaults(folder(tmp_path, **settings))
