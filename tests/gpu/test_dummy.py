"""Random weights on the GPU."""

from __future__ import annotations

from pathlib import Path

import torch

from tests.dummies import write_shape
from tokenspeed.model.config import read_shape
from tokenspeed.model.dummy import DummyTensors


def test_the_gpu_makes_the_same_bits_as_the_cpu(tmp_path: Path) -> None:
    shape = read_shape(write_shape(tmp_path), dummy=True)
    shapes = {"model.layers.3.mlp.down_proj.weight": (128, 320), "lm_head.weight": (1024, 128), "norm.weight": (128,)}
    here, there = (DummyTensors(tmp_path, shape, shapes, device) for device in ("cpu", "cuda"))
    for name, (rows, *_) in shapes.items():
        made = there.read(name, 3, rows)
        assert made.device.type == "cuda"
        assert torch.equal(made.cpu(), here.read(name, 3, rows))
