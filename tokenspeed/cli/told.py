"""Settings as one reads them: `--print-config`, as a file in TOML.

Owns the form: TOML, each line with the one who set it, so that what is printed is a file for
`--config`. What is not set stands as a comment.

Invariant: a secret is shown as "set", never as itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from tokenspeed.cli.sources import Found, Settings

VALUE_COLUMNS = 44


def as_toml(settings: Settings) -> str:
    """Return every setting as a line `name = value  # source`, under its group's title."""
    return "\n".join(_lines(settings)) + "\n"


def _lines(settings: Settings) -> Iterator[str]:
    title = ""
    for found in settings.found:
        if found.option.group.title != title:
            if title:
                yield ""
            title = found.option.group.title
            yield f"# {title}"
        yield f"{_assignment(found):<{VALUE_COLUMNS}}  # {found.source}"


def _assignment(found: Found) -> str:
    option, value = found.option, found.value
    if value in (None, (), {}):
        return f"# {option.name}: {option.told_default}"
    if option.setting.secret:
        return f"# {option.name}: set"
    return f"{option.name} = {_literal(value)}"


def _literal(value: object) -> str:
    """Return a value of TOML."""
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
        case dict():
            return f"{{{', '.join(f'{_literal(key)} = {_literal(item)}' for key, item in value.items())}}}"
        case list() | tuple():
            return f"[{', '.join(map(_literal, value))}]"
    return str(value)
