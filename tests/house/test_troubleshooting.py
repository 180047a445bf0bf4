"""Each text in docs/troubleshooting.md is one that the source really says."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
PAGE = (REPOSITORY / "docs/troubleshooting.md").read_text()
ROWS = re.findall(r"^\| `([^`]+)` \|", PAGE, re.MULTILINE)
GAP = "…"


def said(node: ast.AST) -> Iterator[str]:
    """Yield the texts of a module; what a format string fills in is a gap."""
    for each in ast.walk(node):
        if isinstance(each, ast.Constant) and isinstance(each.value, str):
            yield each.value
        elif isinstance(each, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else GAP for part in each.values)


@pytest.fixture(scope="module")
def source() -> str:
    """Every text of the package, as one."""
    texts = (text for path in REPOSITORY.glob("tokenspeed/**/*.py") for text in said(ast.parse(path.read_text())))
    return "\n".join(dict.fromkeys(texts)).lower()


def test_there_are_rows() -> None:
    assert len(ROWS) > 40
    assert len(ROWS) == len(set(ROWS))


@pytest.mark.parametrize("text", ROWS)
def test_the_source_says_it(text: str, source: str) -> None:
    pattern = ".*".join(re.escape(part) for part in re.split(r"\s*…\s*", text.lower()))
    assert re.search(pattern, source), text
