"""Installing from a fresh clone: how long it takes, and that it goes on after being killed."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import Record

REPOSITORY = Path(__file__).resolve().parents[2]
PORT = 18765


@pytest.fixture
def clone(tmp_path: Path) -> Iterator[Path]:
    """Return a fresh clone of what is committed, and remove it afterwards: it grows to gigabytes."""
    folder = tmp_path / "clone"
    subprocess.run(["git", "clone", "-q", str(REPOSITORY), str(folder)], check=True)
    yield folder
    shutil.rmtree(folder)


def environment(**changed: str) -> dict[str, str]:
    """Return an environment in which no virtual environment is active."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in ("VIRTUAL_ENV", "PYTHONPATH", "MAKEFLAGS", "MAKELEVEL", "PYTHON", "VENV")
    }
    return {**kept, **changed}


def make(folder: Path, *arguments: str, **changed: str) -> subprocess.Popen[str]:
    """Start make in a process group of its own."""
    return subprocess.Popen(
        ["make", *arguments],
        cwd=folder,
        env=environment(**changed),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def first_token(folder: Path, limit_s: float, **changed: str) -> tuple[float, str]:
    """Run `make serve` until it is ready, which is after one real token; return seconds and output."""
    begun = time.monotonic()
    serve = make(folder, "serve", f"PORT={PORT}", **changed)
    try:
        while True:
            assert time.monotonic() - begun < limit_s, "make serve was not ready in time"
            assert serve.poll() is None, serve.communicate()[0]
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/ready", timeout=2.0):
                    seconds = time.monotonic() - begun
                    break
            except OSError:
                time.sleep(0.1)
    finally:
        os.killpg(serve.pid, signal.SIGINT)
        printed = serve.communicate(timeout=60)[0]
    return seconds, printed


@pytest.mark.prove(shows="clone to first token in 180 s with an empty pip cache, 60 s with a warm one", limit_s=900)
def test_clone_to_first_token(clone: Path, tmp_path: Path, proof: Record) -> None:
    cache = str(tmp_path / "pip")
    cold_s, printed = first_token(clone, 180.0, PIP_CACHE_DIR=cache)
    assert "to be downloaded into .venv" in printed
    said = re.search(r"first token.* (\d+\.\d) s", printed)
    assert said is not None, printed
    assert float(said.group(1)) == pytest.approx(cold_s, abs=2.0)
    subprocess.run(["git", "clean", "-qfdx"], cwd=clone, check=True)
    warm_s, _ = first_token(clone, 60.0, PIP_CACHE_DIR=cache)
    again_s, printed = first_token(clone, 10.0, PIP_CACHE_DIR=cache)
    assert "to be downloaded" not in printed
    proof(seconds_cold=round(cold_s, 1), seconds_warm=round(warm_s, 1), seconds_installed=round(again_s, 1))


@pytest.mark.prove(shows="an installation killed again and again goes on and ends complete", limit_s=900)
def test_an_interrupted_installation_goes_on(clone: Path, proof: Record) -> None:
    kills = 0
    for seconds in (1.0, 3.0, 6.0, 8.0, 9.0, 10.0, 11.0, 12.0):
        installing = make(clone, "ready")
        try:
            installing.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(installing.pid, signal.SIGKILL)
            installing.communicate()
            kills += 1
    installing = make(clone, "ready")
    printed, _ = installing.communicate(timeout=300)
    assert installing.returncode == 0, printed
    missing = subprocess.run(
        [str(clone / ".venv/bin/python"), "-c", COMPLETE], check=True, capture_output=True, text=True
    )
    assert missing.stdout == "", missing.stdout
    proof(kills=kills)


# Prints each recorded file of an installed package that is not there.
COMPLETE = """
import importlib.metadata
for package in importlib.metadata.distributions():
    for file in package.files or []:
        if not file.locate().exists() and file.suffix != ".pyc":
            print(package.name, file)
"""


@pytest.mark.prove(shows="two makes at once wait for each other; a third finds nothing to do within a second")
def test_two_makes_at_once(clone: Path, proof: Record) -> None:
    both = [make(clone, "ready") for _ in range(2)]
    printed = [one.communicate(timeout=300)[0] for one in both]
    assert [one.returncode for one in both] == [0, 0], printed
    assert sum("another make is installing here" in text for text in printed) == 1
    assert sum("compiling the native module" in text for text in printed) == 1
    begun = time.monotonic()
    third = make(clone, "ready")
    assert "compiling" not in third.communicate(timeout=60)[0]
    seconds = time.monotonic() - begun
    assert seconds < 1.0
    proof(seconds_nothing_to_do=round(seconds, 2))
