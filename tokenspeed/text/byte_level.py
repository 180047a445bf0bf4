"""The alphabet of byte-level vocabularies: one printable character for each byte.

GPT-2 wrote the bytes that are printable in Latin-1 as themselves, and the others as the characters
from U+0100 on; every byte-level vocabulary since is spelled this way.

Invariant: `CHAR_OF_BYTE` is one to one.
"""

from __future__ import annotations

SPACE_MARK = "▁"  # the space of sentencepiece vocabularies

_PRINTABLE = {*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)}
_OTHERS = [byte for byte in range(256) if byte not in _PRINTABLE]

CHAR_OF_BYTE = {byte: chr(byte) for byte in _PRINTABLE} | {byte: chr(256 + n) for n, byte in enumerate(_OTHERS)}
BYTE_OF_CHAR = {char: byte for byte, char in CHAR_OF_BYTE.items()}
_SPACE_CHAR = CHAR_OF_BYTE[ord(" ")]

# Byte-level spelling as Latin-1, so that a whole token is turned at once.
_LATIN = {ord(char): chr(byte) for char, byte in BYTE_OF_CHAR.items()}


def byte_level_bytes(token: str) -> bytes:
    """Return the bytes that `token` spells; a token that leaves the alphabet is taken as text."""
    if token.isprintable() and " " not in token:
        plain = token.replace(_SPACE_CHAR, " ")
        if plain.isascii():
            return plain.encode("ascii")
    if all(char in BYTE_OF_CHAR for char in token):
        return token.translate(_LATIN).encode("latin-1")
    return token.encode("utf-8")


def sentencepiece_bytes(token: str) -> bytes:
    """Return the bytes of a sentencepiece token: `▁` is a space, `<0xNN>` is one byte."""
    if len(token) == 6 and token.startswith("<0x") and token.endswith(">"):
        try:
            return bytes([int(token[3:5], 16)])
        except ValueError:
            pass
    return token.replace(SPACE_MARK, " ").encode("utf-8")
