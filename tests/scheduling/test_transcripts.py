"""Each transcript, event by event."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scheduling.transcript import ANSWER, FOLDER, played

TRANSCRIPTS = sorted(FOLDER.glob("*.txt"))


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=[path.stem for path in TRANSCRIPTS])
def test_transcript(path: Path) -> None:
    assert played(path.read_text()) == path.read_text(), (
        "the scheduler answers differently; if it should, run `python -m tests.scheduling.transcript --rewrite`"
        " and review the diff"
    )


def test_there_are_transcripts_and_they_have_answers() -> None:
    assert len(TRANSCRIPTS) >= 8
    assert all(f"\n{ANSWER}step 1\n" in path.read_text() for path in TRANSCRIPTS)
