"""From bytes to a typed request, and from a decoder's complaint to an error that names the field.

Owns what is common to every body: JSON from HTTP, MessagePack from the Unix socket. It does not
know what a field means.

Invariant: whatever the bytes, `decode_json` and `decode_msgpack` return an instance of the type or
raise `UserError` with status 400.
"""

from __future__ import annotations

import re
from typing import TypeVar

import msgspec

from tokenspeed.errors import UserError

T = TypeVar("T")

_AT = re.compile(r"^(?P<what>.*?)(?: - at `\$\.?(?P<path>.*)`)?$", re.DOTALL)
_EXPECTED = re.compile(r"^Expected `(?P<want>.*)`, got `(?P<got>.*)`$")
_MISSING = re.compile(r"required field `(?P<field>.*)`")
# It begins with a literal, so that a body without any is searched at the speed of memory.
_HALVES = re.compile(
    rb"\\u[dD](?:[89abAB][0-9a-fA-F]{2}(?P<low>\\u[dD][c-fC-F][0-9a-fA-F]{2})?|[c-fC-F][0-9a-fA-F]{2})"
)
_LONE = rb"\ufffd"
HALVES_MAX = 100_000  # looked at in one body: all other requests wait for that


def decode_json(body: bytes, kind: type[T]) -> T:
    """Return `body` as a `kind`."""
    if not body.strip():
        raise UserError("The body is empty; send a JSON object.", code="invalid_json")
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        raise field_error(error) from None
    except (ValueError, RecursionError):
        return _decode_mended(mend_surrogates(body), kind)


def _decode_mended(body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        raise field_error(error) from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"The body is not valid JSON: {_reason(error)}.", code="invalid_json") from None


def decode_msgpack(body: bytes, kind: type[T]) -> T:
    """Return `body` as a `kind`."""
    try:
        return msgspec.msgpack.decode(body, type=kind)
    except msgspec.ValidationError as error:
        raise field_error(error) from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"The body is not valid MessagePack: {_reason(error)}.", code="invalid_msgpack") from None


def mend_surrogates(body: bytes) -> bytes:
    r"""Return `body` with each half of a surrogate pair that stands alone turned into `\ufffd`.

    Clients that cut a text inside an emoji send such halves; the conversation must not die of it.
    Beyond the first `HALVES_MAX` halves and pairs nothing is mended.
    """
    return _HALVES.sub(_mended, body, count=HALVES_MAX)


def _mended(found: re.Match[bytes]) -> bytes:
    low = found["low"] or b""
    if _is_escaped(found.string, found.start()):
        return found[0].removesuffix(low) + (_LONE if low else b"")
    return found[0] if low else _LONE


def _is_escaped(body: bytes, place: int) -> bool:
    """Tell whether the backslash at `place` belongs to one before it."""
    reach = 64
    while True:
        before = body[max(0, place - reach) : place]
        other = before.rstrip(b"\\")
        if other or reach >= place:
            return (len(before) - len(other)) % 2 == 1
        reach *= 4


def field_error(error: msgspec.ValidationError) -> UserError:
    """Return the error that names the field, what came and what was expected."""
    found = _AT.match(str(error))
    assert found is not None
    what, path = found["what"], found["path"] or ""
    if missing := _MISSING.search(what):
        path = f"{path}.{missing['field']}".lstrip(".")
        return UserError(f"{path} is missing; it is required.", code="missing_required_parameter", param=path)
    if types := _EXPECTED.match(what):
        name = path or "The body"
        return UserError(f"{name} has the type {types['got']}; expected: {types['want']}.", param=path or None)
    return UserError(f"{path or 'The body'}: {what}.", param=path or None)


def _reason(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    return str(error).removeprefix("JSON is malformed: ")
