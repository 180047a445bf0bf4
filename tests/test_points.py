"""The vocabulary of trace points is the C header's."""

from __future__ import annotations

from enum import IntEnum

import pytest

from tokenspeed.capi import ffi
from tokenspeed.points import Kind, Wait, rows_and_tokens


@pytest.mark.parametrize(
    ("vocabulary", "name", "prefix"), [(Kind, "ts_point_kind", "POINT"), (Wait, "ts_wait", "WAIT")]
)
def test_the_numbers_are_those_of_the_header(vocabulary: type[IntEnum], name: str, prefix: str) -> None:
    """Name for name, in both directions."""
    header = ffi.typeof(name).relements
    assert header == {f"TS_{prefix}_{each.name}": each.value for each in vocabulary}


def test_a_planned_point_holds_rows_and_tokens() -> None:
    """Two numbers share its value."""
    assert rows_and_tokens((7 << 32) + 512) == (7, 512)
