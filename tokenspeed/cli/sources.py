"""Where the settings of `tokenspeed serve` come from: flag, TOKENSPEED_* variable, `--config` file, default.

Owns the order (the first of these that names a setting wins), the reading of each source, and the
words of every refusal: which source, what was seen, what is allowed. The settings themselves are
those of `settings.py`; it knows none by name.

Invariant: an unknown name in any source is refused, and a secret is in no message.
"""

from __future__ import annotations

import argparse
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, NoReturn, TypeVar, cast

import msgspec

from tokenspeed.cli.parser import Parser, nearest
from tokenspeed.cli.settings import REFUSED, Option, options
from tokenspeed.config import PREFIX, Secret, settings_environment
from tokenspeed.errors import UserError

Config = TypeVar("Config", bound=msgspec.Struct)

CONFIG_VARIABLE = f"{PREFIX}CONFIG"
DEFAULT = "default"
TRUTHS = {"1": True, "true": True, "0": False, "false": False}
TOML_WORDS = {
    bool: "true or false",
    int: "an integer",
    float: "a number",
    str: "a string",
    list: "an array of strings",
    dict: "a table",
}


class Found(NamedTuple):
    """The value of one setting and who said so: a flag, a variable, a file, or `DEFAULT`."""

    option: Option
    value: object
    source: str


class Settings:
    """What all sources come to. `print_config`: only these were asked for, not the server."""

    def __init__(self, found: Iterable[Found], print_config: bool) -> None:
        self.found = tuple(found)
        self.print_config = print_config

    def config(self, kind: type[Config]) -> Config:
        """Return the struct `kind` with its fields as found; fields that are no setting keep their default."""
        return kind(**{one.option.setting.field: one.value for one in self.found if one.option.group.config is kind})

    def secrets(self) -> Iterator[str]:
        """Yield the secrets that stand on the command line, where others can see them."""
        for one in self.found:
            if one.option.setting.secret and one.source == one.option.flag:
                for value in one.value if isinstance(one.value, tuple) else (one.value,):
                    yield value.value if isinstance(value, Secret) else str(value)


def read_settings(argv: Sequence[str]) -> Settings:
    """Return the settings; leave with a usage error (exit code 2) for what cannot be read."""
    reader = parser()
    words = vars(reader.read(argv, REFUSED))
    try:
        return _settings(words)
    except UserError as error:
        reader.error(error.message)


def parser() -> Parser:
    """Return the parser of the command line; an option that is absent leaves no trace in the result."""
    reader = Parser("tokenspeed serve", "Serve a model over HTTP and a Unix socket.", "[MODEL]")
    reader.add_argument(
        "--config",
        metavar="FILE",
        default=argparse.SUPPRESS,
        help="read settings from this TOML file; its keys are the long options' names",
    )
    reader.add_argument(
        "--print-config",
        action="store_true",
        help="print every setting, its value and who set it, and exit; the output is a file for --config",
    )
    groups: dict[str, argparse._ArgumentGroup] = {}
    for option in options():
        title = option.group.title
        groups[title] = groups.get(title) or reader.add_argument_group(title)
        _add(reader if option.setting.positional else groups[title], option)
    return reader


def _add(place: argparse._ActionsContainer, option: Option) -> None:
    setting = option.setting
    words = f"{setting.help} (default: {option.told_default})".replace("%", "%%")
    more: dict[str, object] = {"help": words, "default": argparse.SUPPRESS}
    if setting.positional:
        place.add_argument(option.name, nargs="?", metavar=setting.metavar, **more)  # type: ignore[arg-type]
        return
    if option.kind is bool:
        more["action"] = argparse.BooleanOptionalAction
    else:
        more["metavar"] = "|".join(setting.choices) or setting.metavar
    if option.kind is tuple:
        more["action"] = "append"
    place.add_argument(option.flag, dest=option.name, **more)  # type: ignore[arg-type]


def _settings(words: Mapping[str, object]) -> Settings:
    known = {option.name: option for option in options()}
    variables = settings_environment()
    path = cast("str | None", words.get("config") or variables.pop(CONFIG_VARIABLE, None))
    variables.pop(CONFIG_VARIABLE, None)
    _refuse_unknown(variables, {option.variable: option for option in known.values()})
    file = _file(Path(path), known) if path is not None else {}
    found = (_find(option, words, variables, file, path or "") for option in known.values())
    return Settings(found, bool(words["print_config"]))


def _find(
    option: Option, words: Mapping[str, object], variables: Mapping[str, str], file: Mapping[str, object], path: str
) -> Found:
    if option.name in words:
        return Found(option, _from_words(option, words[option.name]), option.flag)
    if option.variable in variables:
        return Found(option, _from_variable(option, variables[option.variable]), option.variable)
    if option.name in file:
        return Found(option, _from_file(option, file[option.name], path), path)
    return Found(option, option.default, DEFAULT)


def _from_words(option: Option, raw: object) -> object:
    if isinstance(raw, list):
        return tuple(_read(option, text, option.flag) for text in raw)
    return _read(option, raw, option.flag) if isinstance(raw, str) else raw


def _from_variable(option: Option, text: str) -> object:
    if option.kind is bool:
        if (truth := TRUTHS.get(text.lower())) is None:
            raise UserError(f"{option.variable}: {text!r} is not one of {', '.join(TRUTHS)}")
        return truth
    if option.kind is tuple:
        return tuple(_read(option, part.strip(), option.variable) for part in text.split(","))
    return _read(option, text, option.variable)


def _from_file(option: Option, value: object, path: str) -> object:
    where = f"{option.name} in {path}"
    if type(value) not in option.kinds_toml:
        allowed = " or ".join(TOML_WORDS[kind] for kind in option.kinds_toml)
        kind = TOML_WORDS.get(type(value), f"a {type(value).__name__}")
        raise UserError(f"{where}: {_shown(option, value)} is {kind}; {allowed} is wanted")
    if isinstance(value, bool):
        return value
    if isinstance(value, list):
        if wrong := [part for part in value if not isinstance(part, str)]:
            raise UserError(f"{where}: {_shown(option, wrong[0])} in the array is not a string")
        return tuple(_read(option, part, where) for part in value)
    text = msgspec.json.encode(value).decode() if isinstance(value, dict) else str(value)
    return _read(option, text, where)


def _read(option: Option, text: str, where: str) -> object:
    choices = option.setting.choices
    if choices and text not in choices:
        raise UserError(f"{where}: {text!r} is not one of {', '.join(choices)}")
    try:
        return option.setting.read(text)
    except argparse.ArgumentTypeError as error:
        reason = f"{_shown(option, text)} is not allowed" if option.setting.secret else str(error)
        raise UserError(f"{where}: {reason}") from None


def _shown(option: Option, value: object) -> str:
    return "the value (not shown)" if option.setting.secret else repr(value)


def _file(path: Path, known: Mapping[str, Option]) -> dict[str, object]:
    """Return the file's settings by name; `_` in a key is read as `-`."""
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"--config: {path} cannot be read ({error.strerror})") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"--config: {path} is not TOML: {error}") from None
    named = {key.replace("_", "-"): value for key, value in raw.items()}
    if len(named) < len(raw):
        raise UserError(f"--config: {path} has one setting twice, spelled with - and with _")
    for name in named.keys() - known.keys():
        _refuse(f"{path}: unknown setting {name!r}", name, nearest(name, known))
    return named


def _refuse_unknown(variables: Mapping[str, str], known: Mapping[str, Option]) -> None:
    for name in variables.keys() - known.keys():
        flag = name.removeprefix(PREFIX).lower().replace("_", "-")
        _refuse(f"unknown variable {name} in the environment", flag, nearest(name, known))


def _refuse(what: str, name: str, hint: str) -> NoReturn:
    raise UserError(f"{what}: {REFUSED[name]}" if name in REFUSED else f"{what}{hint}; see --help")
