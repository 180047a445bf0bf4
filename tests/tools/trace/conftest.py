"""A server of the demo model to look into, and tools that leave this process its priority."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.e2e.served import Server, serving
from tests.tiny import demo_path


@pytest.fixture(autouse=True)
def _own_priority(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command makes its process nice, and here that is the one of all other tests."""
    monkeypatch.setattr(os, "nice", lambda by: by)


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """Serve the demo model."""
    with serving(demo_path()) as running:
        yield running
