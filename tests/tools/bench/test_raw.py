"""The raw file: what was written is read, what was cut short is left out, what is wrong is named."""

from __future__ import annotations

from pathlib import Path

import pytest
from tokenspeed_tools.bench.raw import RawFileError, Writer, read
from tokenspeed_tools.bench.summary import summarise

from tests.tools.bench import made


def written(path: Path) -> Path:
    """Write two runs, the second one without a summary."""
    writer = Writer(path)
    first = made.request(0.5, (1.0, 1.5))
    for line in (made.run(), first, summarise(made.run(), [first]), made.run(label="two"), made.request(index=7)):
        writer.write(line)
    writer.close()
    return path


def test_what_was_written_is_read(tmp_path: Path) -> None:
    one, two = read(written(tmp_path / "raw.jsonl"))
    assert (one.run, one.requests) == (made.run(), [made.request(0.5, (1.0, 1.5))])
    assert one.summary == summarise(one.run, one.requests)
    assert (two.run.label, two.requests, two.summary) == ("two", [made.request(index=7)], None)


def test_a_line_that_was_cut_short_is_left_out(tmp_path: Path) -> None:
    path = written(tmp_path / "raw.jsonl")
    path.write_bytes(path.read_bytes()[:-5])
    assert [len(run.requests) for run in read(path)] == [1, 0]


def test_results_are_never_overwritten(tmp_path: Path) -> None:
    with pytest.raises(FileExistsError):
        Writer(written(tmp_path / "raw.jsonl"))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "holds no run"),
        ('{"kind":"summary"}\n', ":1: "),
        ("{}\n", ":1: "),
        ('{"kind":"other"}\n', "other"),
    ],
)
def test_another_file_is_named_with_what_is_wrong(text: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / "other.jsonl"
    path.write_text(text)
    with pytest.raises(RawFileError, match=says):
        read(path)


def test_lines_of_a_later_form_and_lines_without_a_run_are_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "raw.jsonl")
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0].replace(b'"schema":1', b'"schema":2'))
    with pytest.raises(RawFileError, match="schema 2"):
        read(path)
    path.write_bytes(lines[1])
    with pytest.raises(RawFileError, match="run line must come first"):
        read(path)
