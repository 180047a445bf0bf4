"""The spelling of bytes in vocabularies."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tokenspeed.text.byte_level import BYTE_OF_CHAR, CHAR_OF_BYTE, byte_level_bytes, sentencepiece_bytes


def test_alphabet_is_one_to_one_and_printable() -> None:
    assert len(CHAR_OF_BYTE) == len(BYTE_OF_CHAR) == 256
    assert all(char.isprintable() and not char.isspace() for char in BYTE_OF_CHAR)
    assert (CHAR_OF_BYTE[ord("A")], CHAR_OF_BYTE[ord(" ")], CHAR_OF_BYTE[ord("\n")]) == ("A", "Ġ", "Ċ")


@settings(deadline=None)
@given(st.binary(max_size=8))
def test_byte_level_round_trip(data: bytes) -> None:
    assert byte_level_bytes("".join(CHAR_OF_BYTE[byte] for byte in data)) == data


def test_token_outside_the_alphabet_is_text() -> None:
    assert byte_level_bytes("a b") == b"a b"
    assert byte_level_bytes("日") == "日".encode()


def test_sentencepiece() -> None:
    assert sentencepiece_bytes("▁the") == b" the"
    assert sentencepiece_bytes("<0xE2>") == b"\xe2"
    assert sentencepiece_bytes("<0xZZ>") == b"<0xZZ>"
    assert sentencepiece_bytes("日") == "日".encode()
