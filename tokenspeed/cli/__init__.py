"""The command line: `tokenspeed COMMAND ...`.

Owns the list of commands and nothing of what they do. A command's module is imported when it is
asked for, so that `--help` costs no more than argparse. Other packages add commands through the
entry-point group `tokenspeed.commands`: the name is the command, the object a function
`main(argv: list[str]) -> int`.

Invariant: a command of this package cannot be replaced by another package's.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from tokenspeed import __version__

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

Main = Callable[[list[str]], int]

COMMANDS = {
    "serve": "serve a model over HTTP and a Unix socket",
    "chat": "talk to a model in the terminal",
    "env": "tell what is installed and what the machine is like (for bug reports)",
}
GROUP = "tokenspeed.commands"
USAGE = 2


def main(argv: list[str] | None = None) -> int:
    """Run `tokenspeed` with `argv` and return its exit code."""
    _fill_standard_streams()
    argv = sys.argv[1:] if argv is None else argv
    if not argv or argv[0] in ("-h", "--help", "help"):
        print(_help())
        return 0 if argv else USAGE
    if argv[0] in ("-V", "--version", "version"):
        print(f"tokenspeed {__version__}")
        return 0
    return _command(argv[0])(argv[1:])


def _fill_standard_streams() -> None:
    """Open what the caller has closed of 0, 1 and 2: else the next socket would be standard error."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is this one
            setattr(sys, name, open(number, mode, closefd=False))  # noqa: SIM115 - stays open


def _command(name: str) -> Main:
    """Return the function of the command `name`; leave with a usage error if there is none."""
    if name in COMMANDS:
        found: Main = importlib.import_module(f"tokenspeed.cli.{name}").main
        return found
    plugins = _plugins()
    if name in plugins:
        loaded: Main = plugins[name].load()
        return loaded
    from tokenspeed.cli.parser import nearest

    hint = nearest(name, [*COMMANDS, *plugins, "--help", "--version"])
    kind = "option" if name.startswith("-") else "command"
    print(f"tokenspeed: unknown {kind} {name!r}{hint}; see tokenspeed --help", file=sys.stderr)
    raise SystemExit(USAGE)


def _plugins() -> dict[str, EntryPoint]:
    from importlib.metadata import entry_points

    return {point.name: point for point in entry_points(group=GROUP) if point.name not in COMMANDS}


def _help() -> str:
    lines = [f"  {name:<10} {summary}" for name, summary in COMMANDS.items()]
    lines += [f"  {name:<10} from {point.value.partition(':')[0]}" for name, point in sorted(_plugins().items())]
    return "\n".join(
        [
            "usage: tokenspeed COMMAND [OPTION ...]",
            "",
            "TokenSpeed serves large language models.",
            "",
            "commands:",
            *lines,
            "",
            "options:",
            "  -h, --help     show this; `tokenspeed COMMAND --help` tells of a command",
            "  -V, --version  show the version",
        ]
    )
