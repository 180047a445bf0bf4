"""The file of what was shown: one JSON line a run, appended and never rewritten.

Tells which proofs hold for the present source. The source is known by a digest of every file that
git tracks or would add, except results and prose, so that writing a result down or mending the
README does not ask for all proofs again.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

NOT_SOURCE = (":!benchmarks", ":!*.md")


def git(repository: Path, *arguments: str) -> str:
    """Return what git prints."""
    return subprocess.run(["git", *arguments], cwd=repository, check=True, capture_output=True, text=True).stdout


def source_digest(repository: Path) -> str:
    """Return the digest of the working tree's source."""
    listed = git(repository, "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", ".", *NOT_SOURCE)
    digest = hashlib.sha256()
    for name in sorted(filter(None, listed.split("\0"))):
        path = repository / name
        if path.is_file():
            digest.update(f"{name}\0{path.stat().st_size}\0".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def commit(repository: Path) -> str:
    """Return the short commit, with a "+" when the source differs from it."""
    changed = git(repository, "status", "--porcelain", "--", ".", *NOT_SOURCE)
    return git(repository, "rev-parse", "--short=12", "HEAD").strip() + ("+" if changed else "")


def machine_kind() -> str:
    """Return what makes two machines comparable: processor and cores."""
    model = platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    return f"{model}, {len(os.sched_getaffinity(0))} cores"


def machine() -> str:
    """Return the machine in words: processor, cores, memory, kernel."""
    memory_gib = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    return f"{machine_kind()}, {memory_gib:.0f} GiB, Linux {platform.release()}"


def append(path: Path, text: str) -> None:
    """Add a line to `path`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # A run that was killed may have left half a line: start on a fresh one.
    cut = path.exists() and path.read_bytes()[-1:] not in (b"", b"\n")
    with path.open("a") as file:
        file.write(("\n" if cut else "") + text + "\n")


class Ledger:
    """The lines in `path` for one state of the source."""

    def __init__(self, path: Path, repository: Path) -> None:
        self._path = path
        self._same = {
            "commit": commit(repository),
            "source": source_digest(repository),
            "machine": machine(),
        }
        self._proved = {line["proof"] for line in self._lines() if line["ok"]}

    def _lines(self) -> list[dict[str, Any]]:
        """Return the lines of this source; a line that was cut short is passed over."""
        found = []
        for text in self._path.read_text().splitlines() if self._path.exists() else []:
            try:
                line = json.loads(text)
            except ValueError:
                continue
            if line.get("source") == self._same["source"]:
                found.append(line)
        return found

    def proved(self, name: str) -> bool:
        """Return whether `name` was shown for this source."""
        return name in self._proved

    def add(self, name: str, *, ok: bool, figures: dict[str, Any], seconds: float, reason: str) -> None:
        """Append one line."""
        line = {"proof": name, "ok": ok, "figures": figures, "seconds": seconds, **self._same}
        if reason:
            line["reason"] = reason
        append(self._path, json.dumps(line, ensure_ascii=False))
        if ok:
            self._proved.add(name)
