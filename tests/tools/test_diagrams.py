"""The drawn states are those of the native table, and the docs hold the present ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from tokenspeed_tools.diagrams import redrawn, transitions

DOCUMENT = Path(__file__).resolve().parents[2] / "docs/architecture.md"


def test_transitions_are_read_from_the_table() -> None:
    found = transitions()
    assert found[("Submitted", "Prefilling")] == ["Admit"]
    assert "Retract" in found[("Decoding", "Retracted")]
    assert all(source != target for source, target in found)
    assert not any(source == "Finished" for source, _ in found)


def test_the_docs_are_current() -> None:
    text = DOCUMENT.read_text()
    assert redrawn(text) == text, "run python -m tokenspeed_tools.diagrams"


def test_a_document_without_markers_is_refused() -> None:
    with pytest.raises(SystemExit, match="no markers"):
        redrawn("nothing to see")
