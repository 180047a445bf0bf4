"""config.json with a caller's changes, in all spellings of rope."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.formats.test_checkpoint import CONFIG
from tokenspeed.errors import StartError
from tokenspeed.formats.checkpoint import describe
from tokenspeed.formats.config_json import HfConfig, context_of, read_config

YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128}


def config(path: Path, overrides: dict[str, Any] | None = None, **changes: Any) -> HfConfig:
    (path / "config.json").write_text(json.dumps({**CONFIG, **changes}))
    return read_config(path, overrides)


@pytest.mark.parametrize("given", ["rope_scaling", "rope_parameters"])
@pytest.mark.parametrize("changed", ["rope_scaling", "rope_parameters"])
def test_a_change_of_rope_counts_in_every_spelling(tmp_path: Path, given: str, changed: str) -> None:
    """A context that was asked for and is not there would be found out late."""
    found = config(tmp_path, {changed: YARN}, **{given: {"type": "linear", "factor": 2.0}})
    assert found.rope_parameters == YARN
    assert context_of(tmp_path, found).longest == 512
    assert config(tmp_path, {changed: {"factor": 8}}, **{given: YARN}).rope_parameters == {**YARN, "factor": 8}


def test_rope_can_be_switched_off_and_theta_changed(tmp_path: Path) -> None:
    found = config(tmp_path, {"rope_scaling": None}, rope_parameters={**YARN, "rope_theta": 5e5}, rope_theta=None)
    assert (found.rope_parameters, found.rope_theta) == (None, 5e5)
    found = config(tmp_path, {"rope_theta": 1e6}, rope_parameters={**YARN, "rope_theta": 5e5})
    assert (found.rope_parameters, found.rope_theta) == (YARN, 1e6)


def test_nested_settings_are_merged_and_others_replaced(tmp_path: Path) -> None:
    found = config(tmp_path, {"max_position_embeddings": 256, "eos_token_id": [3], "num_key_value_heads": None})
    assert (found.max_position_embeddings, found.eos_token_id, found.num_key_value_heads) == (256, [3], None)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"max_positon_embeddings": 1}, r"hf_overrides has 'max_positon_embeddings' \(did you mean max_position_emb"),
        ({"torch_dtype": "float16"}, "'torch_dtype', which is not read here and would change nothing"),
        ({"hidden_size": "wide"}, r"no model configuration \(.*hidden_size.*\): mend the overrides"),
        ({"rope_scaling": {"type": "linear", "factor": "4"}}, "the rope setting factor is '4'"),
        ({"rope_scaling": {"type": "yarn", "original_max_position_embeddings": 0}}, "rope setting factor is None"),
    ],
)
def test_refused_changes(tmp_path: Path, overrides: dict[str, Any], message: str) -> None:
    with pytest.raises(StartError, match=message):
        context_of(tmp_path, config(tmp_path, overrides))


def test_a_gguf_file_has_no_such_settings(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(b"GGUF")
    with pytest.raises(StartError, match=r"m\.gguf has no config\.json, so hf_overrides cannot change it"):
        describe(tmp_path / "m.gguf", overrides={"rope_theta": 1.0})
