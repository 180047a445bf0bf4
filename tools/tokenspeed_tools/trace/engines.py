"""Which engine is looked at.

Owns the search for control sockets in this user's runtime folder and the option `--engine`. It does not
know what is done with an engine once it is found.

Invariant: a path that is returned is a control socket that exists, or one that the user named.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from tokenspeed.actors.rundir import SOCKET_NAME
from tokenspeed.config import runtime_dir
from tokenspeed.errors import UserError


def add_engine(parser: argparse.ArgumentParser) -> None:
    """Give `parser` the option `--engine`; its value is for `find_engine`."""
    parser.add_argument(
        "--engine",
        metavar="PID|SOCKET",
        help="the engine to look at, by its process id or its control socket (default: your newest one)",
    )


def engines() -> list[Path]:
    """Return the control sockets of this user's engines, the newest first."""
    try:
        found = [(path.stat().st_mtime_ns, path) for path in runtime_dir().glob(f"*/{SOCKET_NAME}") if _lives(path)]
    except OSError:
        return []
    return [path for _, path in sorted(found, reverse=True)]


def find_engine(named: str | None = None) -> Path:
    """Return the control socket of the engine that is named by process id or socket, else of the newest one.

    Raises `UserError` if there is none.
    """
    if named is not None and not named.partition(".")[0].isdigit():
        return _socket(Path(named))
    running = engines()
    for path in running:
        if named in (None, path.parent.name):
            return path
    if named is None:
        raise UserError(
            f"No engine of yours runs (looked in {runtime_dir()}); start one with `tokenspeed serve`, as this user "
            "and with the same XDG_RUNTIME_DIR."
        )
    others = ", ".join(path.parent.name for path in running) or "none"
    raise UserError(f"No engine with process id {named} runs in {runtime_dir()}; running: {others}.")


def name_of(path: Path) -> str:
    """Return what `--engine` takes for the engine behind `path`."""
    return path.parent.name if path.parent.parent == runtime_dir() else str(path)


def told_choice(path: Path, named: str | None) -> str:
    """Return a line that says which engine was taken if the user named none and several run, else ""."""
    others = [name_of(each) for each in engines() if each != path]
    if named is not None or not others:
        return ""
    return f"engine {name_of(path)}, the newest; also running: {', '.join(others)} (choose with --engine PID)"


def _socket(path: Path) -> Path:
    """Return the control socket at `path` or in it."""
    inside = path / SOCKET_NAME if path.is_dir() else path
    if not inside.exists():
        raise UserError(f"{path} is neither the process id of an engine nor a control socket ({SOCKET_NAME}).")
    return inside


def _lives(path: Path) -> bool:
    """Tell whether the folder's process is there; what an engine that was killed has left is passed over."""
    owner = path.parent.name.partition(".")[0]
    return owner.isdigit() and Path("/proc", owner).exists()
