from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server.sockets import short_folder


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A runtime folder of the test's own, with a short path."""
    with short_folder() as folder:
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
        yield folder
