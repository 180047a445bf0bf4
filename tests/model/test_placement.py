"""Collectives stand where declarations part, and nowhere else."""

from __future__ import annotations

import pytest
import torch

from tests.llamas import SIZES
from tokenspeed.model.build import ARCHITECTURES
from tokenspeed.model.layers import Linear, RmsNorm, SiluMul
from tokenspeed.model.llama import Llama
from tokenspeed.model.module import SHARDED, Module
from tokenspeed.model.placement import Leaf, OneRank, PlacementError, compile_placements
from tokenspeed.model.shape import Architecture, ModelShape, RopeShape


class Listening(OneRank):
    """Two ranks that only say what they would have done."""

    ranks = 2

    def all_reduce(self, value: torch.Tensor) -> torch.Tensor:
        return value + 1000

    def all_gather(self, value: torch.Tensor) -> torch.Tensor:
        return torch.cat((value, value), dim=-1)


def _model(architecture: Architecture, tied: bool) -> Llama:
    shape = ModelShape(
        architecture=architecture,
        hidden=SIZES["hidden_size"],
        layers=2,
        heads=4,
        kv_heads=2,
        head_dim=12,
        intermediate=64,
        vocab=64,
        norm_eps=1e-5,
        rope=RopeShape(theta=1e4),
        tied=tied,
        max_position=64,
    )
    return ARCHITECTURES[architecture](shape, 64)


def _boundaries(module: Module, path: str = "") -> dict[str, str]:
    found = {}
    for name, child in module.children():
        if isinstance(child, Leaf):
            if child.boundary is not None:
                found[f"{path}{name}"] = child.boundary.__name__
        else:
            found |= _boundaries(child, f"{path}{name}.")
    return found


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_models_on_two_ranks(architecture: Architecture, tied: bool) -> None:
    """Sums behind each block and the embedding, and one gather of the logits."""
    model = _model(architecture, tied)
    compile_placements(model, Listening())
    assert _boundaries(model) == {
        "model.embed_tokens": "all_reduce",
        "model.layers.0.self_attn.o_proj": "all_reduce",
        "model.layers.0.mlp.down_proj": "all_reduce",
        "model.layers.1.self_attn.o_proj": "all_reduce",
        "model.layers.1.mlp.down_proj": "all_reduce",
        "lm_head": "all_gather",
    }


def test_one_rank_is_the_identity() -> None:
    """Nothing is hung on a model that has no one to talk to."""
    model = _model("llama", tied=True)
    compile_placements(model, OneRank())
    assert _boundaries(model) == {}


def test_a_boundary_is_crossed_once() -> None:
    """What leaves a leaf went through its collective."""
    leaf = SiluMul()
    leaf.boundary = Listening().all_reduce
    assert leaf.leave(torch.zeros(1)).item() == 1000


class Crooked(Module):
    """A norm over values of which each rank has a slice would be wrong."""

    chain = ("project", "norm", "join")

    def __init__(self) -> None:
        self.project = Linear(8, 8, takes=SHARDED)
        self.norm = RmsNorm(8, 1e-5)
        self.join = Linear(8, 8, takes=SHARDED)


def test_declarations_that_do_not_fit_fail_on_one_rank() -> None:
    """A mistake is found without a second rank."""
    with pytest.raises(PlacementError, match="Linear takes sharded values and is given replicated"):
        compile_placements(Crooked(), OneRank())


def test_a_module_without_chain_is_named() -> None:
    """The order of work has to be declared."""
    with pytest.raises(PlacementError, match="Module has no chain"):
        compile_placements(Module(), OneRank())
