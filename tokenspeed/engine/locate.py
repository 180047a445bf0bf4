"""Where the model is that a caller names: here, on the Hugging Face Hub, or the demo.

Owns the order: what exists here wins, then a name on the Hub is downloaded. It does not know what
lies in the files.

Invariant: a path returned exists when it comes from the Hub or is the demo's; any other is refused
where it is read, with what is allowed.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tokenspeed.config import EngineConfig
from tokenspeed.demo import ABSENT, find_demo
from tokenspeed.errors import StartError
from tokenspeed.formats.hub_name import hub_name


def locate(config: EngineConfig, on_event: Callable[[str], None]) -> tuple[Path, str]:
    """Return the path of the model and the name that it has on the Hub, "" if it is not from there.

    `on_event` hears how far a download has come. Raises `StartError`.
    """
    if config.model is None:
        if (demo := find_demo()) is None:
            raise StartError(ABSENT)
        return _local(config, demo)
    path = Path(config.model).expanduser()
    name = None if _exists(path) else hub_name(config.model)
    if name is None:
        return _local(config, path)
    # Its library is imported for names on the Hub alone.
    from tokenspeed.formats.hub import fetch

    told = ""

    def progress(done: int, total: int) -> None:
        nonlocal told
        text = f"download {name.repo} {done / total:.0%} of {total / 1e6:,.0f} MB"
        if text != told:
            told = text
            on_event(text)

    return fetch(name, config.revision, config.load_format, progress), config.model


def _local(config: EngineConfig, path: Path) -> tuple[Path, str]:
    if config.revision is not None:
        raise StartError(
            f"revision is {config.revision!r}, and {path} is no name on the Hub: leave the revision out, or give "
            "the name of the model (owner/name)."
        )
    return path, ""


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        return True  # it is a path, though a bad one: who reads it says so
