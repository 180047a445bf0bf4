"""docs/tracing.md says what the points mean, and which commands there are."""

from __future__ import annotations

import re
from pathlib import Path

from tokenspeed_tools.trace.command import COMMANDS

from tokenspeed.points import Kind

ROOT = Path(__file__).resolve().parents[3]
GUIDE = (ROOT / "docs/tracing.md").read_text()


def test_every_point_is_in_the_table_with_the_words_of_its_source() -> None:
    kinds = (ROOT / "tokenspeed/points.py").read_text().partition("class Kind(IntEnum)")[2].partition("\nclass ")[0]
    defined = re.findall(r"^    ([A-Z_]+) = (\d+)(?:  # (.*))?$", kinds, re.MULTILINE)
    assert [name for name, _, _ in defined] == list(Kind.__members__)
    table = [f"| {number} | `{name}` | {meaning} |" for name, number, meaning in defined]
    told = GUIDE.partition("| number | point | meaning |\n|---|---|---|\n")[2].splitlines()
    assert told == table, "the table of docs/tracing.md is to be:\n" + "\n".join(table)


def test_every_command_is_told() -> None:
    assert all(f"`trace {name}`" in GUIDE for name in COMMANDS)
