"""Puts collectives where what one module gives is not what the next one takes.

A small static compiler: it walks the chain of modules once, before the first token, and hangs a
collective on the output of the leaf before each boundary that needs one. On one rank it checks the
declarations and hangs nothing, so that a wrong one fails on a laptop too.

Invariant: after it, every value that crosses a boundary is placed as its taker declared.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch

from tokenspeed.model.module import PARTIAL, REPLICATED, SHARDED, Module, Placement

Boundary = Callable[[torch.Tensor], torch.Tensor]


class Group(Protocol):
    """The ranks that share a model."""

    rank: int
    ranks: int

    def all_reduce(self, value: torch.Tensor) -> torch.Tensor:
        """Return the sum over ranks; may be done in place."""
        ...

    def all_gather(self, value: torch.Tensor) -> torch.Tensor:
        """Return the values of all ranks joined along the last axis."""
        ...


class OneRank:
    """A group of one: nothing to exchange."""

    rank = 0
    ranks = 1

    def all_reduce(self, value: torch.Tensor) -> torch.Tensor:
        """Return `value`."""
        return value

    def all_gather(self, value: torch.Tensor) -> torch.Tensor:
        """Return `value`."""
        return value


class Leaf(Module):
    """A module that computes. What it returns goes through `leave`."""

    boundary: Boundary | None = None

    def share(self, group: Group) -> None:
        """Learn which share of the work lies here; most leaves see it in their parameters."""

    def leave(self, value: torch.Tensor) -> torch.Tensor:
        """Take `value` across the boundary behind this module."""
        return value if self.boundary is None else self.boundary(value)


class PlacementError(Exception):
    """A model's declarations do not fit together."""


def compile_placements(model: Module, group: Group) -> None:
    """Hang the collectives on the leaves of `model`, which takes and gives replicated values."""
    given, last = _walk(model, REPLICATED, None, group)
    _join(last, given, REPLICATED, group, "the end of the model")


def _walk(module: Module, given: Placement, last: Leaf | None, group: Group) -> tuple[Placement, Leaf | None]:
    if isinstance(module, Leaf):
        _join(last, given, module.takes, group, type(module).__name__)
        module.share(group)
        return module.gives, module
    for child in _in_order(module):
        given, last = _walk(child, given, last, group)
    return given, last


def _in_order(module: Module) -> list[Module]:
    if not module.chain:
        raise PlacementError(f"{type(module).__name__} has no chain: name its modules in the order of their work.")
    order: list[Module] = []
    for name in module.chain:
        value = getattr(module, name)
        order.extend(value if isinstance(value, list) else [value])
    return order


def _join(last: Leaf | None, given: Placement, taken: Placement, group: Group, where: str) -> None:
    if given is taken:
        return
    collectives: dict[tuple[Placement, Placement], Boundary] = {
        (PARTIAL, REPLICATED): group.all_reduce,
        (SHARDED, REPLICATED): group.all_gather,
    }
    collective = collectives.get((given, taken))
    if collective is None or last is None:
        raise PlacementError(f"{where} takes {taken.value} values and is given {given.value} ones.")
    if group.ranks > 1:
        last.boundary = collective
