"""From a path to a model that is declared, placed and bound; then to one with weights.

The one file that knows which class computes which architecture. It reserves no weights before
`Declared.load`, so that the caller can compare what they need with the memory there is.

Invariant: a declared model fits its group: every cut divides among the ranks.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import msgspec
import torch
from tokenspeed_kernels import Selector

from tokenspeed.errors import StartError
from tokenspeed.model.checkpoint import CheckpointTensors, open_checkpoint
from tokenspeed.model.config import read_shape
from tokenspeed.model.dummy import DummyTensors
from tokenspeed.model.layers import ForwardStep, KvPages
from tokenspeed.model.llama import Llama
from tokenspeed.model.loader import Progress, choose_forms, load_weights, tensor_shapes, weights_bytes
from tokenspeed.model.module import Module
from tokenspeed.model.placement import Group, compile_placements
from tokenspeed.model.qwen3 import Qwen3
from tokenspeed.model.shape import Architecture, ModelShape, check_window

ARCHITECTURES: dict[Architecture, type[Llama]] = {"llama": Llama, "mistral": Llama, "qwen2": Llama, "qwen3": Qwen3}
HEAD = "lm_head.weight"

logger = logging.getLogger(__name__)


class LanguageModel(Protocol):
    """What an executor runs."""

    def __call__(self, step: ForwardStep, cache: Sequence[KvPages]) -> torch.Tensor:
        """Return the hidden states [outputs, hidden] of `step` and fill its places in `cache`."""
        ...

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return the float32 logits [rows, vocab] of `hidden` [rows, hidden]."""
        ...


@dataclass(frozen=True, slots=True)
class Declared:
    """A model without weights. `weights_bytes` is what this rank's share will take."""

    shape: ModelShape
    model: Llama
    checkpoint: CheckpointTensors
    group: Group
    dtype: torch.dtype
    device: str
    weights_bytes: int

    @property
    def kv_heads(self) -> int:
        """KV heads of this rank."""
        return self.shape.kv_heads // self.group.ranks

    def load(self, progress: Progress) -> LanguageModel:
        """Read the weights and return the model."""
        ignored = frozenset({HEAD}) if self.shape.tied else frozenset()
        load_weights(
            self.model, self.checkpoint, self.dtype, self.device, self.group.rank, self.group.ranks, ignored, progress
        )
        self.model.place(self.device)
        return self.model


def declare_model(
    path: str,
    max_position: int,
    dtype: torch.dtype,
    kernels: Selector,
    group: Group,
    device: str = "cpu",
    *,
    dummy: bool = False,
    packed: bool = False,
    overrides: Mapping[str, Any] | None = None,
) -> Declared:
    """Declare the model at `path` for positions below `max_position`, on `device`; raises `StartError`.

    With `dummy` its weights are random numbers, and `path` needs none. With `packed` the matrices stay
    whole numbers, see `model.quants`. `overrides` are merged into config.json.
    """
    shape = read_shape(path, dummy=dummy, overrides=overrides)
    check_window(path, shape, max_position)
    checkpoint = None if dummy else open_checkpoint(path, shape.head_dim)
    if checkpoint is not None and not shape.tied and HEAD not in checkpoint.shapes:
        logger.warning("%s has no %s though it says so: the embedding is used.", path, checkpoint.spelled(HEAD))
        shape = msgspec.structs.replace(shape, tied=True)
    _check_divides(shape, group.ranks)
    model = ARCHITECTURES[shape.architecture](shape, max_position)
    tensors = checkpoint or DummyTensors(Path(path), shape, tensor_shapes(model), device)
    prepare(model, kernels, dtype, group, tensors if packed else None)
    weights = weights_bytes(model, group.ranks, dtype)
    return Declared(shape, model, tensors, group, dtype, device, weights)


def prepare(
    model: Module, kernels: Selector, dtype: torch.dtype, group: Group, packed_as: CheckpointTensors | None = None
) -> None:
    """Place `model` on `group` and choose its kernels; its matrices stay as `packed_as` has them, if that is given."""
    compile_placements(model, group)
    if packed_as is not None:
        choose_forms(model, packed_as, group.ranks)
    model.bind(kernels, dtype)


def _check_divides(shape: ModelShape, ranks: int) -> None:
    for name in ("kv_heads", "heads", "intermediate", "vocab"):
        size = getattr(shape, name)
        if size % ranks:
            raise StartError(
                f"the model's {name} ({size}) does not divide among {ranks} ranks; "
                f"choose a tensor parallel size that divides {size}."
            )
