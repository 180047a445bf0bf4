"""Labels never touch and never leave the field."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st
from tokenspeed_tools.report.place import Box, Label, place

FIELD = Box(0, 0, 200, 120)
LABEL = st.builds(Label, st.floats(0, 200), st.floats(0, 120), st.sampled_from(["8", "p99 1,234"]))
LABELS = st.lists(LABEL, max_size=20)


@given(LABELS)
def test_no_label_touches_another_or_a_marker(labels: list[Label]) -> None:
    markers = [Box(label.x - 6, label.y - 6, label.x + 6, label.y + 6) for label in labels]
    found = [placed.box for placed in place(labels, markers, FIELD, 12)]
    assert all(box.inside(FIELD) for box in found)
    assert not any(one.touches(other) for one, other in combinations(found, 2))
    assert not any(box.touches(marker) for box in found for marker in markers)


def test_a_lone_label_stands_at_the_right_of_its_point() -> None:
    (placed,) = place([Label(100, 60, "8")], [], FIELD, 12)
    assert placed.box.left == 108
    assert not placed.far


def test_a_label_at_the_right_end_stands_at_the_left() -> None:
    (placed,) = place([Label(199, 60, "8")], [], FIELD, 12)
    assert placed.box.right == 191
