"""The repository holds none of the forbidden words, and a planted one is found."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from checks.words import findings

REPOSITORY = Path(__file__).resolve().parents[2]


def plant(root: Path, text: str) -> list[str]:
    """Return the findings in a repository that holds one file, not yet added."""
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    (root / "notes.txt").write_text(f"first line\n{text}\n")
    return list(findings(root))


@pytest.mark.skipif(not (REPOSITORY / ".git").exists(), reason="not a clone")
def test_this_repository() -> None:
    assert list(findings(REPOSITORY)) == []


@pytest.mark.parametrize(
    "word",
    [
        "/work" + "/main/x",
        "cd /root" + "/x",
        "py" + "pi.org",
        "files.python" + "hosted.org",
        "download.pytorch.org" + "/whl/cpu",
        "TO" + "DO: x",
        "FIX" + "ME",
        "raise NotImplemented" + "Error",
    ],
)
def test_a_forbidden_word_is_found(tmp_path: Path, word: str) -> None:
    found = plant(tmp_path, f"see {word}")
    assert len(found) == 1
    assert found[0].startswith("notes.txt:2: ")


@pytest.mark.parametrize("text", ["$HOME/work/x", "the network/root/leaf", "MASTODON", "return NotImplemented"])
def test_what_only_looks_like_one(tmp_path: Path, text: str) -> None:
    assert plant(tmp_path, text) == []


def test_binary_and_ignored_files_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "picture.bin").write_bytes(b"\xff\xfe TO" + b"DO")
    (tmp_path / ".gitignore").write_text("ignored\n")
    (tmp_path / "ignored").write_text("TO" + "DO")
    assert plant(tmp_path, "nothing here") == []
