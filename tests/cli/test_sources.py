from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from tokenspeed.cli import settings as table
from tokenspeed.cli.parser import whole
from tokenspeed.cli.settings import Group, Setting, options
from tokenspeed.cli.sources import Settings, read_settings
from tokenspeed.cli.told import as_toml
from tokenspeed.config import CommandConfig, EngineConfig, Secret, ServerConfig

Write = Callable[[str], str]


class Keys(msgspec.Struct, frozen=True, kw_only=True):
    """Settings that cannot be had of the table today: a secret, a list, a mapping."""

    password: int | None = None
    names: tuple[str, ...] = ()
    extra: dict[str, object] = {}


ODD = Group(
    "odd",
    Keys,
    (
        Setting("password", "a secret number", read=whole(1, 99), secret=True),
        Setting("names", "names"),
        Setting("extra", "an object", read=lambda text: msgspec.json.decode(text, type=dict)),
    ),
)


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for option in options():
        monkeypatch.delenv(option.variable, raising=False)


@pytest.fixture
def odd(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "GROUPS", (*table.GROUPS, ODD))


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(text: str) -> str:
        (tmp_path / "s.toml").write_text(text)
        return str(tmp_path / "s.toml")

    return write


def complaint(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    """Return the line of the usage error that `argv` gives."""
    with pytest.raises(SystemExit) as left:
        read_settings(argv)
    assert left.value.code == 2
    return capsys.readouterr().err.splitlines()[-1].removeprefix("tokenspeed serve: error: ")


def sources(found: Settings) -> dict[str, tuple[object, str]]:
    return {one.option.name: (one.value, one.source) for one in found.found}


def test_without_anything_all_is_as_the_structs_say() -> None:
    found = read_settings([])
    for kind in (EngineConfig, ServerConfig, CommandConfig):
        assert found.config(kind) == kind()
    assert {source for _, source in sources(found).values()} == {"default"}


def test_every_field_that_a_caller_may_set_has_its_setting() -> None:
    fixed = {"keep_alive_s"}
    there = {(option.group.config, option.setting.field) for option in options()}
    for kind in (EngineConfig, ServerConfig, CommandConfig):
        for field in kind.__struct_fields__:
            assert ((kind, field) in there) != (field in fixed), field


def test_every_setting_is_read_from_the_command_line() -> None:
    words = (
        "m.gguf --served-model-name n --device cuda --dtype bfloat16 --load-format dummy --max-model-len 100 "
        '--revision v1 --hf-overrides {"rope_theta":1e6} --generation-config vllm '
        "--max-num-seqs 3 --chunked-prefill-size 64 --mixed-prefill-size 32 --gpu-memory-utilization 0.5 "
        "--overlap 0 --kv-cache-memory-bytes 1.5G --no-enable-prefix-caching --stall-limit 2 --host ::1 --port 1 "
        "--drain-timeout 0 --max-request-bytes 1K --no-http --socket s --stop-with-stdin --log-level debug --quiet "
        "--admission-growth-tokens 5 --max-queued-requests 6 --max-queued-bytes 7K --api-key a:b --api-key c "
        "--api-key-file f --admin-key d --open-metrics --allowed-hosts h --allowed-origins o --max-header-bytes 9K "
        "--trust-request-chat-template --max-json-depth 11 --max-json-items 12 --header-timeout 13 --body-timeout 14 "
        "--write-timeout 15 --idle-timeout 16 --max-connections 17"
    )
    found = read_settings(words.split())
    assert found.config(EngineConfig) == EngineConfig(
        model="m.gguf",
        served_model_name="n",
        device="cuda",
        dtype="bfloat16",
        load_format="dummy",
        revision="v1",
        hf_overrides={"rope_theta": 1e6},
        generation_config="vllm",
        max_model_len=100,
        max_num_seqs=3,
        chunked_prefill_size=64,
        mixed_prefill_size=32,
        gpu_memory_utilization=0.5,
        overlap=0,
        kv_cache_bytes=3 << 29,
        enable_prefix_caching=False,
        admission_growth_tokens=5,
        max_queued_requests=6,
        max_queued_bytes=7 << 10,
        stall_limit_s=2.0,
    )
    assert found.config(ServerConfig) == ServerConfig(
        host="::1",
        port=1,
        drain_timeout_s=0.0,
        request_bytes_max=1024,
        http=False,
        socket="s",
        stop_with_stdin=True,
        api_keys=(Secret("a:b"), Secret("c")),
        api_key_file="f",
        admin_key=Secret("d"),
        open_metrics=True,
        allowed_hosts=("h",),
        allowed_origins=("o",),
        trust_request_chat_template=True,
        header_bytes_max=9 << 10,
        json_depth_max=11,
        json_items_max=12,
        header_timeout_s=13.0,
        body_timeout_s=14.0,
        write_timeout_s=15.0,
        idle_s_max=16,
        connections_max=17,
    )
    assert found.config(CommandConfig) == CommandConfig(log_level="debug", quiet=True)


def test_a_flag_rules_a_variable_a_variable_a_file_and_a_file_the_default(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write('host = "h.file"\nport = 1\nmax_num_seqs = 5\nkv-cache-memory-bytes = "1K"\nhttp = false\n')
    monkeypatch.setenv("TOKENSPEED_CONFIG", path)
    monkeypatch.setenv("TOKENSPEED_PORT", "2")
    monkeypatch.setenv("TOKENSPEED_HOST", "h.variable")
    monkeypatch.setenv("TOKENSPEED_QUIET", "TRUE")
    monkeypatch.setenv("TOKENSPEED_DEVICE", "")
    found = sources(read_settings(["--port", "3"]))
    assert found["port"] == (3, "--port")
    assert found["host"] == ("h.variable", "TOKENSPEED_HOST")
    assert found["quiet"] == (True, "TOKENSPEED_QUIET")
    assert found["max-num-seqs"] == (5, path)
    assert found["kv-cache-memory-bytes"] == (1024, path)
    assert found["http"] == (False, path)
    assert found["device"] == ("auto", "default")
    assert sources(read_settings(["--config", write("")]))["max-num-seqs"] == (None, "default")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("max-modl-len = 3", "unknown setting 'max-modl-len' (did you mean max-model-len?)"),
        ("[server]\nport = 3", "unknown setting 'server'"),
        ("port = 3\nmax_num_seqs = 1\nmax-num-seqs = 1", "twice"),
        ('port = "80"', "port in {path}: '80' is a string; an integer is wanted"),
        ("port = true", "port in {path}: True is true or false; an integer is wanted"),
        ("port = 2.5", "2.5 is a number; an integer is wanted"),
        ("port = 70000", "port in {path}: 70000 is not between 0 and 65535"),
        ("http = 1", "1 is an integer; true or false is wanted"),
        ('device = "gpu"', "device in {path}: 'gpu' is not one of auto, cpu, cuda"),
        ("kv-cache-memory-bytes = [1]", "[1] is an array of strings; an integer or a string is wanted"),
        ("host = 2020-01-01", "is a date; a string is wanted"),
        ("port = ", "{path} is not TOML: "),
        ("model = 'a'\nprint-config = true", "unknown setting 'print-config'"),
    ],
)
def test_a_wrong_file_is_told(write: Write, capsys: pytest.CaptureFixture[str], text: str, said: str) -> None:
    path = write(text)
    assert said.format(path=path) in complaint(capsys, "--config", path)


def test_a_file_that_cannot_be_read_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "No such file" in complaint(capsys, "--config", str(tmp_path / "none.toml"))
    assert "Is a directory" in complaint(capsys, "--config", str(tmp_path))
    (tmp_path / "latin").write_bytes(b"host = '\xe4'")
    assert "is not TOML" in complaint(capsys, "--config", str(tmp_path / "latin"))


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("PROT", "1", "unknown variable TOKENSPEED_PROT in the environment (did you mean TOKENSPEED_PORT?)"),
        ("PORT", "http", "TOKENSPEED_PORT: 'http' is not a whole number"),
        ("HTTP", "yes", "TOKENSPEED_HTTP: 'yes' is not one of 1, true, 0, false"),
        ("DEVICE", "gpu", "TOKENSPEED_DEVICE: 'gpu' is not one of auto, cpu, cuda"),
        ("CONFIG", "/none.toml", "--config: /none.toml cannot be read"),
    ],
)
def test_a_wrong_variable_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str, value: str, said: str
) -> None:
    monkeypatch.setenv(f"TOKENSPEED_{name}", value)
    assert said in complaint(capsys)


def test_variables_that_are_no_settings_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "STARTED_AT": "1.0",
        "KERNELS": "norm=reference",
        "SERVICE_HOST": "10.0.0.1",
        "SERVICE_PORT": "8000",
        "SERVICE_PORT_HTTP": "8000",
        "PORT": "tcp://10.0.0.1:8000",
        "PORT_8000_TCP": "tcp://10.0.0.1:8000",
        "PORT_8000_TCP_ADDR": "10.0.0.1",
        "CHAT_SERVICE_HOST": "10.0.0.1",
        "CHAT_PORT": "tcp://10.0.0.1:8000",
    }.items():
        monkeypatch.setenv(f"TOKENSPEED_{name}", value)
    assert sources(read_settings([]))["port"] == (8000, "default")


def test_lists_and_tables(odd: None, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    found = read_settings(["--names", "a", "--names", "b,c", "--extra", '{"x": [1]}'])
    assert found.config(Keys) == Keys(names=("a", "b,c"), extra={"x": [1]})
    path = write('names = ["a", "b"]\n[extra]\nx = [1, 2.5]\ny = {z = "\\u007f\\""}\n')
    found = read_settings(["--config", path])
    assert found.config(Keys) == Keys(names=("a", "b"), extra={"x": [1, 2.5], "y": {"z": '\x7f"'}})
    assert read_settings(["--config", write(as_toml(found))]).config(Keys) == found.config(Keys)
    monkeypatch.setenv("TOKENSPEED_NAMES", "a, b")
    assert read_settings([]).config(Keys) == Keys(names=("a", "b"))


def test_a_secret_is_in_no_message(odd: None, write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = (
        complaint(capsys, "--password", "4711"),
        complaint(capsys, "--config", write("password = 4711")),
        complaint(capsys, "--config", write('password = "4711"')),
    )
    for said in wrong:
        assert "(not shown)" in said
        assert "4711" not in said
    shown = as_toml(read_settings(["--password", "47"]))
    assert "# password: set" in shown
    assert "47" not in shown.partition("# odd")[2]


def test_what_is_printed_says_who_set_it_and_can_be_read_again(
    write: Write, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TOKENSPEED_MAX_NUM_SEQS", "7")
    found = read_settings(["m.gguf", "--print-config", "--port", "81", "--kv-cache-memory-bytes", "2M"])
    assert found.print_config
    printed = as_toml(found)
    lines = {line.partition(" ")[0]: line.split("#")[-1].strip() for line in printed.splitlines() if "=" in line}
    assert lines["model"] == "MODEL"
    assert lines["port"] == "--port"
    assert lines["max-num-seqs"] == "TOKENSPEED_MAX_NUM_SEQS"
    assert lines["host"] == "default"
    for option in options():
        assert f"{option.name} = " in printed or f"# {option.name}: " in printed
    monkeypatch.delenv("TOKENSPEED_MAX_NUM_SEQS")
    again = read_settings(["--config", write(printed)])
    for kind in (EngineConfig, ServerConfig, CommandConfig):
        assert again.config(kind) == found.config(kind)
    assert tomllib.loads(printed)["kv-cache-memory-bytes"] == 2 << 20
