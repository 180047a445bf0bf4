"""Engines and servers for end-to-end tests: whole processes, real rings, a tiny or the demo model."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tiny import demo_path, write_tiny_model


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the path of a tiny random model."""
    return write_tiny_model(tmp_path_factory.mktemp("model") / "tiny.gguf")


@pytest.fixture(scope="session")
def demo_model() -> Path:
    """Return the path of the demo model."""
    return demo_path()
