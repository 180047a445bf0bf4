"""Holds the repository clean of words that have no place in it.

Machine paths, addresses of package registries, and promises instead of code. Looks at every text
file that git tracks (or would add). A pattern is spelled so that it does not match itself.

    python tools/checks/words.py [ROOT]     prints one line a finding, exits 1 if there is one
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

FORBIDDEN = {
    "the path of one machine": r"(?<![\w.$}])/(?:work|root|home)/(?!\.\.\.)\w",
    "the address of a package registry": (
        r"py[p]i\.org|pythonhosted[.]|pytorch\.org/wh[l]|deb\.debian[.]|registry\.npmj[s]|ubuntu\.co[m]/ubuntu"
    ),
    "a promise instead of code": r"\b(?:TOD[O]|FIXM[E]|XX[X]|NotImplementedErro[r])\b",
}
PATTERN = re.compile("|".join(f"(?P<w{number}>{text})" for number, text in enumerate(FORBIDDEN.values())))


def files(repository: Path) -> list[Path]:
    """Return the files that git tracks or would add."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=repository, check=True, capture_output=True, text=True).stdout
    return [path for name in listed.split("\0") if name and (path := repository / name).is_file()]


def findings(repository: Path) -> Iterator[str]:
    """Yield "file:line: text: what it is" for each forbidden word."""
    for path in files(repository):
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        for match in PATTERN.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            kind = list(FORBIDDEN)[int(str(match.lastgroup)[1:])]
            yield f"{path.relative_to(repository)}:{line}: {match.group()}: {kind}"


def main() -> int:
    """Print the findings."""
    repository = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parents[2]
    found = list(findings(repository))
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
