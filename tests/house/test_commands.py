"""The commands of README.md and the guides work as they stand.

Each block named `bash` is run in an empty folder, where `tokenspeed` is the command line with the
scripted engine, beside a server on the port that the block names.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.processes import ROOT, Server, serving
from tests.server.sockets import short_folder

DOCUMENTS = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md"))]
BLOCKS = [
    pytest.param(block, id=f"{path.name}-{number}")
    for path in DOCUMENTS
    for number, block in enumerate(re.findall(r"^```bash\n(.*?)^```$", path.read_text(), re.MULTILINE | re.DOTALL))
]
SCRIPT = f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -m tests.cli.fake_cli "$@"\n'


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with short_folder() as folder, serving(folder, "hello") as running:
        yield running


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the commands in `bin` and `.venv/bin`."""
    for place in (tmp_path / "bin", tmp_path / ".venv/bin"):
        place.mkdir(parents=True)
        (place / "tokenspeed").write_text(SCRIPT)
        (place / "tokenspeed").chmod(0o755)
    return tmp_path


def test_there_are_blocks() -> None:
    assert len(BLOCKS) >= 6
    assert any("README" in str(block.id) for block in BLOCKS)


@pytest.mark.parametrize("block", BLOCKS)
def test_a_block_runs(block: str, server: Server, folder: Path) -> None:
    path = f"{folder / 'bin'}:{server.environment['PATH']}"
    environment = {name: value for name, value in server.environment.items() if name != "PYTHONPATH"}
    script = block.replace(":8000", f":{server.url.rpartition(':')[2]}").replace("curl ", "curl --fail-with-body -sS ")
    done = subprocess.run(
        ["bash", "-e", "-c", script],
        cwd=folder,
        env={**environment, "PATH": path},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"
    assert done.stdout
