"""The command `tokenspeed trace`, also `tools/trace`: which subcommands there are.

Owns the list and nothing of what they do: a subcommand is a module of this package with
`main(argv: list[str]) -> int`, imported when it is asked for. What the user did wrong, also what the
engine refuses, ends here as one line.

Invariant: the process runs at low priority, so that looking does not slow what is looked at.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable

from tokenspeed.cli.parser import nearest
from tokenspeed.errors import TokenSpeedError

COMMANDS = {
    "record": "write what the engine does for a while to a file",
    "top": "watch the engine live",
    "explain": "tell the life of one request",
    "budget": "tell where each microsecond of a step went",
}
USAGE = 2
NICE = 10


def main(argv: list[str]) -> int:
    """Run a subcommand and return its exit code."""
    if not argv or argv[0] in ("-h", "--help", "help"):
        print(_help())
        return 0 if argv else USAGE
    if argv[0] not in COMMANDS:
        print(f"trace: unknown command {argv[0]!r}{nearest(argv[0], COMMANDS)}; see trace --help", file=sys.stderr)
        return USAGE
    os.nice(NICE)
    command: Callable[[list[str]], int] = importlib.import_module(f"tokenspeed_tools.trace.{argv[0]}").main
    try:
        return command(argv[1:])
    except TokenSpeedError as error:
        print(f"trace {argv[0]}: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:  # nobody reads on, as behind `head`; nor may Python's last flush find that out
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _help() -> str:
    lines = [f"  {name:<10} {summary}" for name, summary in COMMANDS.items()]
    head = ["usage: tokenspeed trace COMMAND [OPTION ...]", "", "Look into a running engine.", "", "commands:"]
    return "\n".join([*head, *lines, "", "`tokenspeed trace COMMAND --help` tells of a command."])
