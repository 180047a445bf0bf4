"""The command line with the scripted engine behind `serve`: `python -m tests.cli.fake_cli serve ...`.

`FAKE_SCENARIO` says what the engine does.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from typing import Any

from tests.server.fake_engine import END, FOREVER, FakeEngine, Output, Step
from tokenspeed import cli
from tokenspeed.cli import private, serve
from tokenspeed.config import EngineConfig
from tokenspeed.errors import EngineError, StartError

SLOW: list[Step] = [step for word in range(1000) for step in (Output(f"{word} "), 0.01)]
SCENARIOS: dict[str, dict[str, Any]] = {
    "hello": {},
    "loading": {"start": [3600.0]},
    "broken": {"start": [StartError("The weights are cut off at byte 7.")]},
    "bug": {"start": [ValueError("not planned")]},
    "forever": {"script": [FOREVER]},
    "slow": {"script": [SLOW]},
    "half-second": {"script": [[Output("a"), 0.5, END]]},
    "lost": {"script": [FOREVER]},
}


class Losing(FakeEngine):
    """Loses itself as soon as a request is open."""

    def generate(self, *arguments: Any, **settings: Any) -> Any:
        stream = super().generate(*arguments, **settings)
        self.state, self.ok = "lost", False
        asyncio.get_running_loop().call_later(0.05, stream.fail, EngineError("The engine is lost."))
        return stream


def make_engine(config: EngineConfig, *, on_event: Callable[[str], None]) -> FakeEngine:
    """Return the engine of the scenario."""
    name = os.environ.get("FAKE_SCENARIO", "hello")
    kind = Losing if name == "lost" else FakeEngine
    return kind(config, on_event=on_event, **SCENARIOS[name])


def main() -> int:
    """Run a command, `serve` with the scripted engine, also where `chat` starts it."""
    private.COMMAND = (sys.executable, "-m", "tests.cli.fake_cli")
    if sys.argv[1] == "serve":
        return serve.main(sys.argv[2:], make_engine)
    return cli.main()


if __name__ == "__main__":
    sys.exit(main())
