"""Tests that need a GPU; elsewhere they are skipped, each with the reason."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from tokenspeed_tools.bench_gpu.shapes import write_shape

from tests.tiny import demo_path


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what lies in this folder, and skip it without a GPU."""
    absent = pytest.mark.skip(reason="torch finds no CUDA device")
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.gpu)
            if not torch.cuda.is_available():
                item.add_marker(absent)


@pytest.fixture(scope="session")
def four_layers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shape of Llama-3.1-8B with 4 layers; its weights are made up."""
    return write_shape(tmp_path_factory.mktemp("shape") / "llama8b-4", layers=4)


@pytest.fixture(scope="session")
def demo_model() -> Path:
    """Return the path of the demo model."""
    return demo_path()


@pytest.fixture(autouse=True)
def _memory_is_given_back() -> Iterator[None]:
    yield
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
