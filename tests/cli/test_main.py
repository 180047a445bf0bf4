from __future__ import annotations

import subprocess
import sys
from importlib.metadata import EntryPoint, EntryPoints

import pytest

from tokenspeed import __version__, cli

PLUGINS = EntryPoints(
    [
        EntryPoint("double", "tests.cli.test_main:double", cli.GROUP),
        EntryPoint("serve", "tests.cli.test_main:double", cli.GROUP),
    ]
)


def double(argv: list[str]) -> int:
    return 2 * len(argv)


@pytest.fixture
def plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: PLUGINS.select(group=group))


@pytest.mark.parametrize("word", ["--help", "-h", "help"])
def test_help_lists_the_commands(word: str, plugins: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([word]) == 0
    said = capsys.readouterr().out
    for name in (*cli.COMMANDS, "double"):
        assert f"\n  {name} " in said
    assert "from tests.cli.test_main" in said
    assert said.count("serve ") >= 1


def test_no_command_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 2
    assert "usage: tokenspeed" in capsys.readouterr().out


@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1, 2)])
def test_closed_standard_streams_are_filled(closed: tuple[int, ...]) -> None:
    code = (
        "import os, sys\n"
        f"for number in {closed}: os.close(number)\n"
        "sys.stdin, sys.stdout, sys.stderr = (None if n in "
        f"{closed} else s for n, s in enumerate((sys.stdin, sys.stdout, sys.stderr)))\n"
        "from tokenspeed import cli\n"
        "assert cli.main(['--version']) == 0\n"
        "print('x', file=sys.stderr)\n"
        f"assert all(os.readlink(f'/proc/self/fd/{{number}}') == os.devnull for number in {closed})\n"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0


@pytest.mark.parametrize("word", ["--version", "-V", "version"])
def test_version(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([word]) == 0
    assert capsys.readouterr().out == f"tokenspeed {__version__}\n"


@pytest.mark.parametrize(
    ("word", "said"),
    [("srve", "unknown command 'srve' (did you mean serve?)"), ("--versoin", "unknown option"), ("zzz", "--help")],
)
def test_an_unknown_command_gives_the_nearest(word: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        cli.main([word])
    assert left.value.code == 2
    assert said in capsys.readouterr().err


def test_another_package_adds_a_command_and_replaces_none(plugins: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["double", "a", "b"]) == 4
    with pytest.raises(SystemExit) as left:
        cli.main(["serve", "--no-such-option"])
    assert left.value.code == 2
    assert "tokenspeed serve: error" in capsys.readouterr().err


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_has_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        cli.main([name, "--help"])
    assert left.value.code == 0
    assert f"usage: tokenspeed {name}" in capsys.readouterr().out


def test_help_imports_nothing_heavy_and_is_quick() -> None:
    code = (
        "import sys, time; from tokenspeed.cli import main; main(['--help']); took = time.process_time();"
        "heavy = {'torch', 'numpy', 'msgspec', 'starlette', 'uvicorn', 'uvloop', 'asyncio'} & set(sys.modules);"
        "sys.exit(f'{heavy} {took:.3f}')"
    )
    took_s = []
    for _ in range(3):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        heavy, _, seconds = done.stderr.strip().rpartition(" ")
        assert heavy == "set()"
        took_s.append(float(seconds))
    assert min(took_s) < 0.15
