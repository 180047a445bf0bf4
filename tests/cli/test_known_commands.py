"""The command lines that the published description of the engine gives: each flag is honoured or refused by name."""

from __future__ import annotations

import pytest

from tokenspeed.cli.settings import options
from tokenspeed.cli.sources import Settings, read_settings
from tokenspeed.config import EngineConfig, ServerConfig
from tokenspeed.engine.launch import resolve
from tokenspeed.errors import StartError

SMALL = "openai/gpt-oss-20b --host 0.0.0.0 --port 8000 --tensor-parallel-size 1"
HONOURED = (
    "nvidia/Kimi-K2.5-NVFP4 --served-model-name kimi-k2.5 --host 0.0.0.0 --port 8000 --max-model-len 262144 "
    "--chunked-prefill-size 8192 --max-num-seqs 256"
)
REFUSED = (
    ("--trust-remote-code", "never run"),
    ("--kv-cache-dtype fp8", "--dtype"),
    ("--quantization nvfp4", "checkpoint quantised as wanted"),
    ("--tensor-parallel-size 4", "use 1"),
    ("--enable-expert-parallel", "no model with experts"),
    ("--attention-backend trtllm_mla", "use auto"),
    ("--moe-backend flashinfer_trtllm", "no model with experts"),
    ("--reasoning-parser kimi_k2", "leave it out"),
    ("--tool-call-parser kimi_k2", "leave it out"),
)


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for option in options():
        monkeypatch.delenv(option.variable, raising=False)


def read(line: str) -> Settings:
    return read_settings(line.split())


def test_the_smallest_command_is_honoured_as_it_stands() -> None:
    settings = read(SMALL)
    engine, server = settings.config(EngineConfig), settings.config(ServerConfig)
    assert (engine.model, engine.tensor_parallel_size) == ("openai/gpt-oss-20b", 1)
    assert (server.host, server.port) == ("0.0.0.0", 8000)


def test_what_is_honoured_of_the_large_command() -> None:
    engine = read(HONOURED).config(EngineConfig)
    assert (engine.served_model_name, engine.max_model_len) == ("kimi-k2.5", 262144)
    assert (engine.chunked_prefill_size, engine.max_num_seqs) == (8192, 256)


@pytest.mark.parametrize(("flag", "what_to_do"), REFUSED)
def test_the_other_flags_are_refused_by_name_with_the_reason_and_what_to_use(
    flag: str, what_to_do: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        read(f"{HONOURED} {flag}")
    assert left.value.code == 2
    line = capsys.readouterr().err.strip().splitlines()[-1]
    assert flag.split()[0] in line
    assert what_to_do in line


def test_auto_is_taken_where_a_choice_is_not() -> None:
    line = "m --kv-cache-dtype auto --quantization auto --attention-backend auto"
    assert read(line).config(EngineConfig) == EngineConfig(model="m")


@pytest.mark.parametrize("setting", [{"tensor_parallel_size": 2}, {"quantization": "fp8"}])
def test_the_engine_refuses_the_same_values(setting: dict[str, object]) -> None:
    with pytest.raises(StartError, match=next(iter(setting))):
        resolve(EngineConfig(model="m", **setting))  # type: ignore[arg-type]
