"""Text from outside stays text."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenspeed_tools.report.markup import Markup, clean, element, joined, number


@given(st.text(), st.text())
def test_any_text_comes_back_as_it_was(child: str, attribute: str) -> None:
    read = ElementTree.fromstring(element("p", child, title=attribute))
    assert len(read) == 0
    # XML reads a line's end in its own way (XML 1.0, 2.11 and 3.3.3).
    assert (read.text or "") == clean(child).replace("\r\n", "\n").replace("\r", "\n")
    assert read.attrib["title"].split() == clean(attribute).split()


@pytest.mark.parametrize("hostile", ["\x00", "\x1b[31m", "\ud800", "\u202etxt.exe", "\uffff", "\u2066"])
def test_what_no_document_may_hold_is_replaced(hostile: str) -> None:
    assert "\ufffd" in element("p", hostile)
    ElementTree.fromstring(element("p", hostile)).text.encode()  # type: ignore[union-attr]


def test_markup_stays_and_lists_of_it_are_joined() -> None:
    assert joined("<", Markup("<br/>")) == "&lt;<br/>"
    assert element("p", element("b", "x"), class_="a", text_anchor=None, hidden=True) == (
        '<p class="a" hidden="hidden"><b>x</b></p>'
    )


def test_coordinates_are_short() -> None:
    assert [number(value) for value in (1.0, 1.004, 0.125, -2.5, 100.0)] == ["1", "1", "0.12", "-2.5", "100"]
