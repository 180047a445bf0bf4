"""What a model is made of: modules, their parameters, and how values are placed on ranks.

A module declares the placement that it takes and gives, and, if it has children, the `chain` in
which values run through them. It is written with the sizes of the whole model, as if for one
device; the loader cuts the parameters and `placement.compile_placements` finds the collectives.

Invariant: the name of a parameter is its path of attributes.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum

import torch
from tokenspeed_kernels import Selector
from tokenspeed_kernels.gemm.packed_weight import PackedWeight

from tokenspeed.model.quants import Form


class Placement(Enum):
    """Where the parts of a value are: whole on each rank, cut along its last axis, or summands."""

    REPLICATED = "replicated"
    SHARDED = "sharded"
    PARTIAL = "partial"


REPLICATED, SHARDED, PARTIAL = Placement


class Parameter:
    """A weight, declared by its shape on one device and filled by the loader.

    `pieces` are the checkpoint's tensors that lie one after the other along axis 0, by name and
    size; one nameless piece is the usual case. `cut` is the axis that ranks share out, piece by
    piece. A matrix is declared [out, in], as checkpoints have it, and given to the products as
    [in, out]. On the CPU it lies that way in memory too; on a GPU each output's weights lie side
    by side, as the kernels there read them, and `data` is a transposed view.
    """

    def __init__(
        self,
        pieces: dict[str, int] | int,
        *rest: int,
        cut: int | None = None,
        packs: bool = False,
    ) -> None:
        """Declare axis 0 by `pieces` and the other axes by `rest`; only a matrix `packs`."""
        self.pieces = {"": pieces} if isinstance(pieces, int) else pieces
        self.rest = rest
        self.cut = cut
        self.packs = packs
        self.form: Form | None = None
        self._data: torch.Tensor | None = None
        self._packed: PackedWeight | None = None

    @property
    def data(self) -> torch.Tensor:
        """The share of this rank, a matrix as [in, out]."""
        assert self._data is not None, "the parameter is used before it was loaded"
        return self._data

    @property
    def value(self) -> torch.Tensor | PackedWeight:
        """What the products take: `data`, or the packed weight."""
        return self.data if self._packed is None else self._packed

    def shape(self, ranks: int) -> tuple[int, ...]:
        """Return the shape of one rank's share, as declared."""
        sizes = [sum(self.pieces.values()), *self.rest]
        if self.cut is not None:
            sizes[self.cut] //= ranks
        return tuple(sizes)

    def allocate(self, ranks: int, dtype: torch.dtype, device: str) -> torch.Tensor:
        """Reserve this rank's share on `device` and return it in the declared shape."""
        shape = self.shape(ranks)
        if device == "cpu":
            self._data = torch.empty(shape[::-1], dtype=dtype)
        else:
            self._data = torch.empty(shape, dtype=dtype, device=device).t()
        return self._data.t()

    def keep(self, packed: PackedWeight) -> None:
        """Take this rank's share as whole numbers."""
        self._packed = packed


class Module:
    """A part of a model; parameters and child modules are its attributes, lists of modules included."""

    takes = REPLICATED
    gives = REPLICATED
    chain: tuple[str, ...] = ()

    def children(self) -> Iterator[tuple[str, Module]]:
        """Yield (name, module) of each child, once."""
        for name, value in vars(self).items():
            if isinstance(value, Module):
                yield name, value
            elif isinstance(value, list):
                yield from ((f"{name}.{index}", item) for index, item in enumerate(value) if isinstance(item, Module))

    def parameters(self, prefix: str = "") -> Iterator[tuple[str, Parameter]]:
        """Yield (path, parameter) of the whole tree; a shared parameter comes under its first path."""
        seen: set[int] = set()
        for path, parameter in self._parameters(prefix):
            if id(parameter) not in seen:
                seen.add(id(parameter))
                yield path, parameter

    def bind(self, kernels: Selector, dtype: torch.dtype) -> None:
        """Choose the kernels of the whole tree; a leaf extends this."""
        for _, child in self.children():
            child.bind(kernels, dtype)

    def place(self, device: str) -> None:
        """Take what is no parameter to `device`; who has such extends this."""
        for _, child in self.children():
            child.place(device)

    def _parameters(self, prefix: str) -> Iterator[tuple[str, Parameter]]:
        for name, value in vars(self).items():
            if isinstance(value, Parameter):
                yield f"{prefix}{name}", value
        for name, child in self.children():
            yield from child._parameters(f"{prefix}{name}.")
