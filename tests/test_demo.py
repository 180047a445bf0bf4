"""The demo model's package is found without being imported."""

from __future__ import annotations

from pathlib import Path

import pytest

from tokenspeed.demo import find_demo


def test_no_demo(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tokenspeed.demo.PACKAGE", "no_such_package_here")
    assert find_demo() is None
    (tmp_path / "demo_package_without_model").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr("tokenspeed.demo.PACKAGE", "demo_package_without_model")
    assert find_demo() is None
