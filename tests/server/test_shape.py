from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenspeed.errors import UserError
from tokenspeed.server.shape import check_shape

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(alphabet='ab"\\[]{},:é\n'),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(alphabet='"\\[,', max_size=3), inner, max_size=4)
    ),
    max_leaves=20,
)


def shape(value: Any) -> tuple[int, int]:
    """Return depth and marks of `value`, counted the slow way."""
    if not isinstance(value, list | dict):
        return 0, 0
    inner = [shape(item) for item in (value.values() if isinstance(value, dict) else value)]
    marks = 1 + max(0, len(inner) - 1) + (len(value) if isinstance(value, dict) else 0)
    return 1 + max((depth for depth, _ in inner), default=0), marks + sum(items for _, items in inner)


def refusal(body: bytes, depth_max: int, items_max: int) -> str:
    try:
        check_shape(body, depth_max, items_max)
    except UserError as error:
        return error.code if error.status == 400 else "not the caller's fault"
    return ""


@settings(max_examples=60, deadline=None)
@given(values)
def test_depth_and_items_are_counted_exactly(value: Any) -> None:
    body = json.dumps(value, ensure_ascii=False).encode()
    depth, items = shape(value)
    assert refusal(body, depth, max(1, items)) == ""
    if depth > 0:
        assert refusal(body, depth - 1, max(1, items)) == "json_too_deep"
    if 1 < items < len(body):
        assert refusal(body, depth, items - 1) == "json_too_large"


@pytest.mark.parametrize("unit", [b"{},", b"[", b'"",', b'\\"', b'"', b"{", b"1,"])
@pytest.mark.parametrize("begin", [b"", b"[", b'"'])
def test_megabytes_of_anything_are_looked_at_quickly(begin: bytes, unit: bytes) -> None:
    body = begin + unit * ((8 << 20) // len(unit))
    begun_s = time.perf_counter()
    refusal(body, 100, 1 << 18)
    assert time.perf_counter() - begun_s < 2.0  # decoding such a body takes as much a megabyte
