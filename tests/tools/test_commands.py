"""The entry points of the tools exist and have the form that the command line calls."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import tomllib
from pathlib import Path

import pytest
from tokenspeed_tools import commands

PROJECT = tomllib.loads((Path(__file__).resolve().parents[2] / "pyproject.toml").read_text())["project"]
POINTS = {**PROJECT["entry-points"]["tokenspeed.commands"], **PROJECT["scripts"]}


@pytest.mark.parametrize("name", sorted(POINTS))
def test_an_entry_point_takes_arguments_and_returns_a_code(name: str) -> None:
    module, _, function = POINTS[name].partition(":")
    signature = inspect.signature(getattr(importlib.import_module(module), function), eval_str=True)
    assert list(signature.parameters) == ["argv"]
    assert signature.return_annotation is int


def test_bench_ring_without_zeromq_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert commands.bench_ring([]) == 1
    assert "pip install pyzmq" in capsys.readouterr().err
