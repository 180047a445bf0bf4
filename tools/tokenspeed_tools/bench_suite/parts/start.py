"""What starting costs: the imports of each process, and a whole engine until its first token.

Imports are timed in fresh interpreters, each after its own start; the engine serves the demo model.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator

from tokenspeed.config import child_environment
from tokenspeed_tools.bench_suite.model import demo_model, own_engine
from tokenspeed_tools.bench_suite.part import Kind, Measure, Part, Sizes, Values, time_of

MODULES = {
    "server": "tokenspeed.cli.serve, tokenspeed.server.service",
    "tokenizer": "tokenspeed.actors.tokenizer",
    "scheduler": "tokenspeed.actors.scheduler",
    "executor": "tokenspeed.actors.executor",
    "detokenizer": "tokenspeed.actors.detokenizer",
}
TIMED = "import time; begin = time.perf_counter(); import {}; print((time.perf_counter() - begin) * 1e3)"


def import_ms(modules: str) -> float:
    """Return the milliseconds that a fresh interpreter takes to import `modules`."""
    command = [sys.executable, "-c", TIMED.format(modules)]
    environment = child_environment(sys.path)
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return float(done.stdout)


@contextlib.contextmanager
def prepare(sizes: Sizes) -> Iterator[Measure]:
    """Find the demo model, and import everything once so that it is in the page cache."""
    model = demo_model()
    for modules in MODULES.values():
        import_ms(modules)

    def measure(number: int) -> Values:
        values = {f"import_{name}_ms": import_ms(modules) for name, modules in MODULES.items()}
        with own_engine(model) as running:
            return {**values, "ready_s": running.ready_s, "memory_mib": running.memory_mib}

    yield measure


PART = Part(
    name="start",
    shows="imports of each process; an engine of the demo model from nothing to its first token",
    about_s=50,
    rounds=5,
    sizes={},
    figures={
        **{f"import_{name}_ms": time_of("ms", "work") for name in MODULES},
        "ready_s": time_of("s", "work"),
        "memory_mib": Kind("MiB", "lower", "none"),
    },
    prepare=prepare,
)
