"""Reading options: argparse, with a hint for a mistyped name.

Owns the manners of every command's options: no abbreviations, the nearest name for an unknown one,
sizes such as 512M. It does not know which options there are.

Invariant: whatever cannot be read leaves the process with exit code 2 and one line of reason.
"""

from __future__ import annotations

import argparse
import difflib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec

from tokenspeed.config import AUTO

# As vLLM reads them: small letters count in thousands, capital ones in powers of 1024.
TOKEN_UNITS = {"": 1, "k": 10**3, "m": 10**6, "K": 1 << 10, "M": 1 << 20}
_TOKENS = re.compile(r"(\d+(?:\.\d+)?)([kmKM]?)")
UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", re.IGNORECASE)


class Parser(argparse.ArgumentParser):
    """An argument parser that takes whole option names alone and says what was meant instead."""

    def __init__(self, prog: str, description: str, positional: str = "") -> None:
        super().__init__(
            prog=prog,
            usage=f"{prog} [OPTION ...] {positional}".rstrip(),
            description=description,
            allow_abbrev=False,
        )

    def read(self, argv: Sequence[str], refused: Mapping[str, str] | None = None) -> argparse.Namespace:
        """Return the options in `argv`, or leave with a usage error; `refused` has reasons by name."""
        options, rest = self.parse_known_args(argv)
        unknown = next((word for word in rest if word.startswith("-")), rest[0] if rest else None)
        if unknown is not None:
            name = unknown.partition("=")[0]
            if reason := (refused or {}).get(name.removeprefix("--").replace("_", "-")):
                self.error(f"{name}: {reason}")
            known = [option for action in self._actions for option in action.option_strings]
            self.error(f"unknown argument {name!r}{nearest(name, known)}")
        return options


def nearest(name: str, known: Iterable[str]) -> str:
    """Return " (did you mean X?)" for the name in `known` that is like `name`, else ""."""
    found = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f" (did you mean {found[0]}?)" if found else ""


def whole(low: int, high: int) -> Callable[[str], int]:
    """Return a reader of whole numbers from `low` to `high`."""

    def read(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"{value} is not between {low} and {high}")
        return value

    return read


def fraction(low: float, high: float) -> Callable[[str], float]:
    """Return a reader of numbers from `low` to `high`."""

    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"{value} is not between {low} and {high}")
        return value

    return read


def context(text: str) -> int | Literal["auto"]:
    """Read a number of tokens: 32768, 32k (32,000), 32K (32,768), or auto, which may be written -1."""
    if text in (AUTO, "-1"):
        return AUTO
    found = _TOKENS.fullmatch(text.strip())
    value = float(found[1]) * TOKEN_UNITS[found[2]] if found else 0.0
    if not 1 <= value < 1 << 31 or value != int(value):
        raise argparse.ArgumentTypeError(f"{text!r} is not {AUTO} or a number of tokens such as 32768, 32k or 32K")
    return int(value)


def json_object(text: str) -> dict[str, Any]:
    """Read a JSON object."""
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a JSON object ({error})") from None


def endpoint(text: str) -> str:
    """Read the URL of a collector that speaks OTLP over HTTP; without a path it is that of traces."""
    parts = urlsplit(text.strip())
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a URL such as http://HOST:4318/v1/traces; OTLP is spoken over HTTP here, not gRPC"
        )
    return parts._replace(path=parts.path if parts.path.strip("/") else "/v1/traces").geturl()


def seconds(text: str) -> float:
    """Read a time in seconds, zero or more."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e9:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds, zero or more")
    return value


def size(text: str) -> int:
    """Read a number of bytes: 1073741824, 1G, 1.5GiB (powers of 1024)."""
    found = _SIZE.fullmatch(text.strip())
    value = int(float(found[1]) * UNITS[found[2].upper()]) if found else 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size such as 1073741824, 512M or 1.5G")
    return value
