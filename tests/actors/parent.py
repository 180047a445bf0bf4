"""An engine's process that a test kills: `python -m tests.actors.parent MODE`.

Prints one line, the actors' process ids, once they are running (mode "ready") or still loading
(mode "loading"), then lives on.
"""

from __future__ import annotations

import asyncio
import sys

from tests.actors.toys import ToyConfig
from tests.actors.world import World, run, to_and_from_home


async def main(mode: str) -> None:
    """Start the toys, tell their ids, and wait to be killed."""
    toys = {name: ToyConfig(start_sleep_s=60.0 * (mode == "loading")) for name in ("a", "b")}
    world = World(toys, to_and_from_home("a", "b"))
    starting = asyncio.create_task(world.supervisor.start())
    last = "ready" if mode == "ready" else "loads toys"
    await world.until(lambda: all(f"{name}: {last}" in world.events for name in toys))
    print(world.pid("a"), world.pid("b"), flush=True)
    await starting
    await asyncio.sleep(60)


if __name__ == "__main__":
    run(main(sys.argv[1]))
