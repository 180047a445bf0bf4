"""The pair: both engines get the load and their notes, in turns, and the table names what differs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from tokenspeed_tools import bench_pair
from tokenspeed_tools.bench.raw import ClientInfo, Run, Target, Warmup
from tokenspeed_tools.bench_cpu.engines import Running


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Return what is asked of `bench`, while engines are only pretended; each run leaves a file that was cut short."""
    arguments: list[list[str]] = []

    @contextlib.contextmanager
    def started(command: str, model: Path, log: Path) -> Iterator[Running]:
        if command.startswith("broken"):
            raise RuntimeError("it ended with status 1")
        assert model.read_text() == "weights"
        yield Running(f"http://{command.split()[0]}", model.name, 1.0, 100)

    def bench(argv: list[str]) -> int:
        arguments.append(argv)
        options = list(zip(argv[1::2], argv[2::2], strict=False))
        run = Run(
            label=dict(options)["--label"],
            started_at="2026-01-01T00:00:00+00:00",
            started_monotonic_ns=0,
            command=argv,
            mode="agentic",
            workload={},
            warmup=Warmup(requests=0, how=""),
            target=Target(url="", api="chat", model="m", server="s", server_info={}),
            client=ClientInfo(version="", python="", machine="", cores=2, commit=""),
            gpus=0,
            notes=dict(value.split("=", 1) for name, value in options if name == "--note"),
        )
        path = Path(dict(options)["--output"])
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(msgspec.json.encode(run) + b"\n")
        return 0

    monkeypatch.setattr(bench_pair, "started", started)
    monkeypatch.setattr(bench_pair, "bench", bench)
    return arguments


def call(tmp_path: Path, *argv: str) -> int:
    """Run the command with a model that is a file of one word."""
    model = tmp_path / "model.gguf"
    model.write_text("weights")
    return bench_pair.main(["--model", str(model), "--output", str(tmp_path / "out"), *argv])


def test_both_get_the_same_load_in_turns(
    asked: list[list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    setting = ["--setting", "KV cache", "float32", "float16"]
    argv = ["--own", "ours {port}", "--peer", "other=/opt/x/theirs {port}", "--rounds", "2", *setting]
    assert call(tmp_path, *argv, "--", "--turns", "3") == 0
    assert [Path(argv[argv.index("--output") + 1]).stem for argv in asked] == [
        "tokenspeed-1",
        "other-1",
        "other-2",
        "tokenspeed-2",
    ]
    loads = {tuple(argv[argv.index("--sessions") : argv.index("--note")]) for argv in asked}
    assert loads == {bench_pair.LOAD}
    assert all(argv[-2:] == ["--turns", "3"] for argv in asked)
    assert "KV cache=float16" in asked[1]
    assert "command=theirs {port}" in asked[1]
    shown = capsys.readouterr().out
    assert "KV cache: other: float16; tokenspeed: float32" in shown
    assert shown.count("was cut short") == 4


def test_a_side_that_does_not_start_fails_the_pair(
    asked: list[list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(tmp_path, "--peer", "other=broken") == 1
    assert "other failed: it ended with status 1" in capsys.readouterr().err
    assert len(asked) == 1


def test_a_peer_needs_a_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        call(tmp_path, "--peer", "other")
    assert "'other' is not NAME=COMMAND" in capsys.readouterr().err
