"""The parts that models are built of.

Each is declared with the sizes of the whole model and the placement of what it takes and gives,
picks its kernels once, and computes. Shapes in comments are those of one device.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import torch
from tokenspeed_kernels import Selector, activation, attention, embedding, gemm, norm, rope
from tokenspeed_kernels.attention import StepRows
from tokenspeed_kernels.gemm.packed_weight import PackedWeight

from tokenspeed.model.module import PARTIAL, REPLICATED, SHARDED, Module, Parameter, Placement
from tokenspeed.model.placement import Group, Leaf
from tokenspeed.model.rope import inverse_frequency
from tokenspeed.model.shape import RopeShape

# A product with a weight, float or packed: which of them was settled when it was chosen.
Multiply = Callable[[torch.Tensor, Any], torch.Tensor]


@dataclass(frozen=True, slots=True)
class KvPages:
    """The cache of one layer: two tensors [pages, page_tokens, kv_heads, head_dim]."""

    keys: torch.Tensor
    values: torch.Tensor


@dataclass(frozen=True, slots=True)
class ForwardStep:
    """One step's tokens, row after row: three integer tensors [tokens] and the rows' layout.

    `places` says where a token's keys and values go: page * page_tokens + offset. `outputs` [n] are
    the indices of the tokens whose hidden states are wanted; None wants all.
    """

    ids: torch.Tensor
    positions: torch.Tensor
    places: torch.Tensor
    rows: StepRows
    outputs: torch.Tensor | None = None


@dataclass(frozen=True, slots=True)
class Rotation:
    """Cosine and signed sine of one step's positions, both [tokens, head_dim]."""

    cos: torch.Tensor
    sin: torch.Tensor


class Linear(Leaf):
    """A projection; several that read the same input are one, by the names of `outputs`."""

    def __init__(
        self,
        inputs: int,
        outputs: int | dict[str, int],
        takes: Placement = REPLICATED,
        gives: Placement = REPLICATED,
        bias: bool = False,
    ) -> None:
        """A sharded input gives a partial sum; a sharded output comes from a replicated input."""
        self.takes = takes
        self.gives = PARTIAL if takes is SHARDED else gives
        cut = 1 if takes is SHARDED else 0 if gives is SHARDED else None
        self.weight = Parameter(outputs, inputs, cut=cut, packs=True)
        self.bias = Parameter(outputs, cut=0 if gives is SHARDED else None) if bias else None
        self._adds_bias = True

    def share(self, group: Group) -> None:
        """Leave the bias of a partial sum to the first rank: it is in the sum once."""
        self._adds_bias = self.gives is not PARTIAL or group.rank == 0

    def bind(self, kernels: Selector, dtype: torch.dtype) -> None:
        """Choose the product."""
        packed = self.weight.form is not None
        self._multiply: Multiply = gemm.packed(kernels) if packed else gemm.linear(kernels, dtype)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Return [tokens, outputs] for x [tokens, inputs]."""
        out = self._multiply(x, self.weight.value)
        return self.leave(out.add_(self.bias.data) if self.bias is not None and self._adds_bias else out)


class Embedding(Leaf):
    """Token ids to vectors; ranks share the vocabulary out."""

    gives = PARTIAL

    def __init__(self, vocab: int, hidden: int) -> None:
        """A table of `vocab` rows."""
        self.weight = Parameter(vocab, hidden, cut=0, packs=True)
        self._first = 0
        self._sliced = False

    def share(self, group: Group) -> None:
        """Learn which rows of the table lie here."""
        self._sliced = group.ranks > 1
        self.weight.packs = not self._sliced
        self._first = group.rank * self.weight.shape(group.ranks)[0]

    def bind(self, kernels: Selector, dtype: torch.dtype) -> None:
        """Choose the lookup."""
        self._lookup: Callable[[torch.Tensor], torch.Tensor]
        if self.weight.form is not None:
            packed = embedding.packed_lookup(kernels)
            self._lookup = lambda ids: packed(ids, cast("PackedWeight", self.weight.value))
        else:
            plain = embedding.lookup(kernels, dtype, self._sliced)
            self._lookup = lambda ids: plain(ids, self.weight.data, self._first)

    def __call__(self, ids: torch.Tensor) -> torch.Tensor:
        """Return [tokens, hidden] for ids [tokens]."""
        return self.leave(self._lookup(ids))


class Head(Leaf):
    """Vectors to logits; ranks share the vocabulary out."""

    gives = SHARDED

    def __init__(self, vocab: int, hidden: int, tied: Embedding | None = None) -> None:
        """With `tied`, the embedding's table is the weight."""
        self.weight = tied.weight if tied is not None else Parameter(vocab, hidden, cut=0, packs=True)

    def bind(self, kernels: Selector, dtype: torch.dtype) -> None:
        """Choose the product."""
        packed = self.weight.form is not None
        self._multiply: Multiply = gemm.packed(kernels) if packed else gemm.head(kernels, dtype)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Return float32 [rows, vocab] for x [rows, hidden]."""
        return self.leave(self._multiply(x, self.weight.value))


class RmsNorm(Leaf):
    """Root-mean-square normalisation; with a residual, of the sum, which is returned too."""

    def __init__(self, hidden: int, eps: float) -> None:
        """`eps` is added to the mean square."""
        self.weight = Parameter(hidden)
        self._eps = eps

    def bind(self, kernels: Selector, dtype: torch.dtype) -> None:
        """Choose the two kernels."""
        self._norm = norm.rms_norm(kernels, dtype)
        self._add_norm = norm.add_rms_norm(kernels, dtype)

    def __call__(self, x: torch.Tensor, residual: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        """Return (normalised, x + residual), both [tokens, hidden]; x is given up."""
        if residual is None:
            return self._norm(x, self.weight.data, self._eps), x
        return self._add_norm(x, residual, self.weight.data, self._eps)


class HeadNorm(Leaf):
    """Root-mean-square normalisation of each head by itself; all heads share the weights."""

    takes = gives = SHARDED

    def __init__(self, head_dim: int, eps: float) -> None:
        """`eps` is added to the mean square."""
        self.weight = Parameter(head_dim)
        self._eps = eps

    def bind(self, kernels: Selector, dtype: torch.dtype) -> None:
        """Choose the kernel."""
        self._norm = norm.rms_norm(kernels, dtype)

    def __call__(self, heads: torch.Tensor) -> torch.Tensor:
        """Return [tokens, heads, head_dim] for the same, whose tokens may have any stride."""
        rows = heads.reshape(-1, heads.shape[-1])
        return self.leave(self._norm(rows, self.weight.data, self._eps).view(heads.shape))


class SiluMul(Leaf):
    """silu(gate) * up, of the two halves of its input."""

    takes = gives = SHARDED

    def bind(self, kernels: Selector, dtype: torch.dtype) -> None:
        """Choose the kernel."""
        self._silu_mul = activation.silu_mul(kernels, dtype)

    def __call__(self, gate_up: torch.Tensor) -> torch.Tensor:
        """Return [tokens, n] for [tokens, 2 * n]."""
        return self.leave(self._silu_mul(gate_up))


class Rope(Module):
    """The rotation of every position of a model. It has no weights and is no step of the chain."""

    def __init__(self, shape: RopeShape, head_dim: int, max_position: int) -> None:
        """Compute the tables of positions 0 to max_position - 1."""
        cos, sin = rope.rotation(torch.arange(max_position), inverse_frequency(shape, head_dim, max_position))
        self._cos, self._sin = cos.mul_(shape.attention_factor), sin.mul_(shape.attention_factor)

    def place(self, device: str) -> None:
        """Take the tables to `device`. They are computed on the CPU, so that all devices turn alike."""
        self._cos, self._sin = self._cos.to(device), self._sin.to(device)

    def __call__(self, positions: torch.Tensor) -> Rotation:
        """Return the rotation of `positions` [tokens]."""
        return Rotation(self._cos.index_select(0, positions), self._sin.index_select(0, positions))


class Attention(Leaf):
    """Rotates, stores and attends. Heads are what it is given: all of them, or this rank's."""

    takes = gives = SHARDED

    def __init__(self, head_dim: int) -> None:
        """The number of heads follows from the pages."""
        self._head_dim = head_dim

    def bind(self, kernels: Selector, dtype: torch.dtype) -> None:
        """Choose the two kernels."""
        self._rope_store = rope.rope_store(kernels, dtype, self._head_dim)
        self._attend = attention.paged_attention(kernels, dtype, self._head_dim)

    def __call__(self, qkv: torch.Tensor, rotation: Rotation, pages: KvPages, step: ForwardStep) -> torch.Tensor:
        """Return [tokens, heads * head_dim] for the projections [tokens, (heads + 2 * kv_heads) * head_dim]."""
        heads = qkv.view(len(qkv), -1, self._head_dim)
        queries = self._rope_store(heads, rotation.cos, rotation.sin, pages.keys, pages.values, step.places)
        return self.leave(self._attend(queries, pages.keys, pages.values, step.rows))
