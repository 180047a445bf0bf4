"""Writes docs/flags.md, from the very table that the parser of `tokenspeed serve` is made of.

    python -m tokenspeed_tools.flags [FILE]    rewrites the page

Owns the page's form. A setting's words are those of its help.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from tokenspeed.cli.settings import REFUSED, Option, options

DOCUMENT = Path("docs/flags.md")
HEAD = """\
# Settings of `tokenspeed serve`

Written by `python -m tokenspeed_tools.flags` from the table that the parser is made of. Where settings come from, and
which source wins, is told in [configuration.md](configuration.md). Three flags stand on the command line alone:
`--help`, `--print-config` (every setting, its value and its source, in the form of a `--config` file), and
`--config FILE`, which may also be given as `TOKENSPEED_CONFIG`.
"""
COLUMNS = "| flag | variable | default | meaning |\n|---|---|---|---|"


def page() -> str:
    """Return the whole page."""
    return "\n".join([HEAD, *_groups(), *_refused()])


def _groups() -> Iterator[str]:
    for title, group in groupby(options(), lambda option: option.group.title):
        yield f"## {title[0].upper()}{title[1:]}\n"
        yield COLUMNS
        yield from map(_row, group)
        yield ""


def _row(option: Option) -> str:
    setting = option.setting
    words = " or ".join(f"`{choice}`" for choice in setting.choices)
    meaning = f"{setting.help}{f': {words}' if words else ''}{' (secret: never shown)' if setting.secret else ''}"
    return f"| {_flag(option)} | `{option.variable}` | {_cell(option.told_default)} | {_cell(meaning)} |"


def _flag(option: Option) -> str:
    if option.setting.positional:
        return f"`{option.flag}`"
    if option.kind is bool:
        return f"`{option.flag}`, `--no-{option.name}`"
    return f"`{option.flag} {_cell(option.setting.metavar)}`" if not option.setting.choices else f"`{option.flag}`"


def _refused() -> Iterator[str]:
    yield "## Refused by name\n\n| name | what to do |\n|---|---|"
    yield from (f"| `--{name}` | {_cell(reason)} |" for name, reason in REFUSED.items())
    yield ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def main() -> None:
    """Rewrite the page."""
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else DOCUMENT
    path.write_text(page())


if __name__ == "__main__":
    main()
