"""Trust follows characters: against an oracle that carries a flag for every character."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenspeed.text.trusted import Trusted, concat, join, plain, spans_of, trust


@dataclass
class Flagged:
    """The oracle: a text and, for each character, whether the template wrote it."""

    text: str
    flags: list[bool]

    @staticmethod
    def of(value: str) -> Flagged:
        flags = [False] * len(value)
        for begin, end in spans_of(value):
            flags[begin:end] = [True] * (end - begin)
        return Flagged(plain(value), flags)

    def __add__(self, other: Flagged) -> Flagged:
        return Flagged(self.text + other.text, self.flags + other.flags)

    def __getitem__(self, part: slice) -> Flagged:
        return Flagged(self.text[part], self.flags[part])


pieces = st.tuples(st.text("ab <é", max_size=4), st.booleans()).map(lambda pair: trust(pair[0]) if pair[1] else pair[0])
mixed = st.lists(pieces, max_size=5).map(concat)


def check(value: str) -> None:
    """Check the invariant of spans."""
    end = -1
    for begin, stop in spans_of(value):
        assert end < begin < stop <= len(value)
        end = stop


@settings(deadline=None)
@given(mixed, mixed)
def test_addition(left: str, right: str) -> None:
    check(left + right)
    assert Flagged.of(left + right) == Flagged.of(left) + Flagged.of(right)


@settings(deadline=None)
@given(mixed, st.none() | st.integers(-8, 8), st.none() | st.integers(-8, 8))
def test_slices(value: str, start: int | None, stop: int | None) -> None:
    check(value[start:stop])
    assert Flagged.of(value[start:stop]) == Flagged.of(value)[start:stop]
    assert plain(value[start:stop:2]) == plain(value)[start:stop:2]


@settings(deadline=None)
@given(mixed.filter(bool))
def test_items(value: str) -> None:
    for index in range(-len(value), len(value)):
        assert Flagged.of(value[index]) == Flagged.of(value)[index : index + 1 or None]
    with pytest.raises(IndexError):
        value[len(value)]


@settings(deadline=None)
@given(mixed, st.sampled_from([None, "a", "b ", "<"]))
def test_stripping(value: str, chars: str | None) -> None:
    text = plain(value)
    left = len(text) - len(text.lstrip(chars))
    right = len(text.rstrip(chars))
    assert Flagged.of(value.lstrip(chars)) == Flagged.of(value)[left:]
    assert Flagged.of(value.rstrip(chars)) == Flagged.of(value)[:right]
    assert Flagged.of(value.strip(chars)) == Flagged.of(value)[left : max(left, right)]
    check(value.strip(chars))


@settings(deadline=None)
@given(mixed, st.text("ab", min_size=1, max_size=2), pieces, st.integers(-1, 3))
def test_replacing(value: str, old: str, new: str, count: int) -> None:
    replaced = value.replace(old, new, count)
    check(replaced)
    expected = Flagged("", [])
    rest = Flagged.of(value)
    while count and old in rest.text:
        place = rest.text.index(old)
        expected += rest[:place] + Flagged.of(new)
        rest = rest[place + len(old) :]
        count -= 1
    expected += rest
    assert plain(replaced) == expected.text
    if isinstance(value, Trusted):
        assert Flagged.of(replaced) == expected


@settings(deadline=None)
@given(pieces, st.lists(pieces, max_size=4))
def test_joining(between: str, items: list[str]) -> None:
    expected = Flagged("", [])
    for index, item in enumerate(items):
        expected += Flagged.of(between if index else "") + Flagged.of(item)
    assert Flagged.of(join(between, items)) == expected
    assert plain(between.join(items)) == expected.text


@settings(deadline=None)
@given(mixed)
def test_case(value: str) -> None:
    for name in ("lower", "upper", "title", "capitalize"):
        changed = getattr(value, name)()
        assert plain(changed) == getattr(plain(value), name)()
        check(changed)
        if len(changed) == len(value):
            assert Flagged.of(changed).flags == Flagged.of(value).flags


def test_a_longer_spelling_keeps_trust_only_of_the_whole() -> None:
    assert spans_of(trust("ß").upper()) == ((0, 2),)
    assert spans_of((trust("<") + "ß").upper()) == ()


def test_is_a_string_in_every_other_way() -> None:
    value = trust("user")
    assert value == "user"
    assert hash(value) == hash("user")
    assert {"user": 1}[value] == 1
    assert str(value) is value
    assert "se" in value
    assert type(plain(value)) is str
    assert value.__class__ is Trusted


def test_unknown_operations_lose_trust() -> None:
    value = trust("<|a|>")
    for result in (value * 2, value.center(9), f"{value}!", value.split("|")[0], "".join([value])):
        assert spans_of(result) == ()


def test_adding_to_other_things_fails() -> None:
    for call in (lambda: trust("a") + 1, lambda: 1 + trust("a")):  # type: ignore[operator]
        with pytest.raises(TypeError):
            call()
