"""tools/gpu/run.sh with a stand-in for Python: which commands it runs, and what it makes of their ends."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
SCRIPT = REPOSITORY / "tools/gpu/run.sh"
PYTHON = """#!/bin/bash
echo "python $*"
case "$*" in
  *build_ext*) exit 3 ;;
  *tests/gpu*) exec sleep 30 ;;
esac
"""


@pytest.fixture
def out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    python = tmp_path / "python"
    python.write_text(PYTHON)
    python.chmod(0o755)
    for name in ("TEST_ARGS", "KERNELS_ARGS", "STEPS_ARGS", "BENCH_ARGS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"PYTHON": str(python), "COMMIT": "abc123", "JOBS": "2"}.items():
        monkeypatch.setenv(name, value)
    return tmp_path / "out"


def run(*words: object, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [SCRIPT, *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
        env={**os.environ, **environment},
    )


def test_a_failure_stops_no_other_stage_and_the_table_tells_it(out: Path) -> None:
    done = run(out, "build", "gpu-test:1", "kernels-test", "bench", TEST_ARGS="-x -vv", BENCH_ARGS="--layers 4")
    assert done.returncode == 1
    table = (out / "summary").read_text()
    first, *rows = [line.split(maxsplit=3) for line in table.splitlines()]
    assert first == ["===", "commit", "abc123"]
    assert [(name, word) for name, _, _, word in rows] == [
        ("build", "failed (3)"),
        ("gpu-test", "ended after 1 s"),
        ("kernels-test", "ok"),
        ("bench", "ok"),
    ]
    assert done.stdout.endswith(table)
    log = (out / "log").read_text()
    assert "tests/kernels -x -vv" in log
    assert f"bench_gpu --commit abc123 --json {out}/engine.jsonl --layers 4" in log
    assert log == done.stdout


def test_wheels_are_unpacked_without_an_index(out: Path, tmp_path: Path) -> None:
    (tmp_path / "a-1-py3-none-any.whl").touch()
    done = run("--wheels", tmp_path, out, "wheels", SITE="/the/site")
    assert done.returncode == 0
    assert "--no-index --no-deps" in done.stdout
    assert f"--target /the/site {tmp_path}/a-1-py3-none-any.whl" in done.stdout


def test_wheels_without_a_folder_fail_alone(out: Path) -> None:
    done = run(out, "wheels", "kernels-test")
    assert done.returncode == 1
    assert "wheels needs --wheels DIR" in done.stdout
    assert "kernels-test" in (out / "summary").read_text()


@pytest.mark.parametrize("words", [(), ("/tmp/out",), ("/tmp/out", "build", "tests"), ("--fast", "/tmp/out", "build")])
def test_wrong_usage_runs_nothing(words: tuple[str, ...]) -> None:
    done = run(*words)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "run.sh [--wheels DIR] OUT STAGE" in done.stderr
