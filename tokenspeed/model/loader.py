"""Fills the parameters of a model from a checkpoint.

Owns the comparison of what a model needs with what a checkpoint has, and the copy of this rank's
share, some rows at a time. Only the share of a rank is ever in its memory.

Invariant: no parameter is touched before every tensor is known to be there and to have its shape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from tokenspeed.errors import StartError
from tokenspeed.model.checkpoint import CheckpointTensors
from tokenspeed.model.module import Module, Parameter

CHUNK_ELEMENTS = 4 << 20

Progress = Callable[[str, float], None]


@dataclass(frozen=True, slots=True)
class Piece:
    """One tensor of the checkpoint and where this rank's share of it goes: rows from `offset` of `parameter`."""

    name: str
    parameter: Parameter
    offset: int
    shape: tuple[int, ...]


def weights_bytes(model: Module, ranks: int, dtype: torch.dtype) -> int:
    """Return the memory that one rank's share of the weights takes."""
    shapes = (parameter.shape(ranks) for _, parameter in model.parameters())
    return sum(torch.Size(shape).numel() for shape in shapes) * dtype.itemsize


def tensor_shapes(model: Module) -> dict[str, tuple[int, ...]]:
    """Return the tensors that `model` takes from a checkpoint: whole shapes by name."""
    pieces = (piece for path, parameter in model.parameters() for piece in _pieces(path, parameter, 1))
    return {piece.name: piece.shape for piece in pieces}


def load_weights(
    model: Module,
    checkpoint: CheckpointTensors,
    dtype: torch.dtype,
    device: str,
    rank: int,
    ranks: int,
    ignored: frozenset[str],
    progress: Progress,
) -> None:
    """Fill every parameter of `model` with this rank's share, in the memory of `device`.

    `ignored` are tensors that may be present and are not needed. Raises one `StartError` that names
    every tensor that is missing, unexpected or of another shape.
    """
    pieces = [piece for path, parameter in model.parameters() for piece in _pieces(path, parameter, ranks)]
    _check(pieces, checkpoint, ignored)
    total = sum(torch.Size(piece.shape).numel() for piece in pieces)
    targets: dict[int, torch.Tensor] = {}
    done = 0
    for piece in pieces:
        if id(piece.parameter) not in targets:
            targets[id(piece.parameter)] = piece.parameter.allocate(ranks, dtype, device)
        _fill(targets[id(piece.parameter)], piece, checkpoint, rank, ranks)
        done += torch.Size(piece.shape).numel()
        progress("load weights", done / total)


def _pieces(path: str, parameter: Parameter, ranks: int) -> Iterator[Piece]:
    offset = 0
    for name, size in parameter.pieces.items():
        whole = path
        if name:
            module, _, leaf = path.rpartition(".")
            whole = f"{module.rpartition('.')[0]}.{name}.{leaf}"
        yield Piece(whole, parameter, offset, (size, *parameter.rest))
        offset += size // ranks if parameter.cut == 0 else size


def _check(pieces: list[Piece], checkpoint: CheckpointTensors, ignored: frozenset[str]) -> None:
    wanted = {piece.name: piece.shape for piece in pieces}
    found = checkpoint.shapes
    missing = [checkpoint.spelled(name) for name in wanted if name not in found]
    unexpected = [checkpoint.spelled(name) for name in found if name not in wanted and name not in ignored]
    misshapen = [
        f"{checkpoint.spelled(name)} is {_sizes(found[name])}, not {_sizes(shape)}"
        for name, shape in wanted.items()
        if name in found and found[name] != shape
    ]
    faults = [
        f"{what}: {', '.join(names)}"
        for what, names in (("missing", missing), ("unexpected", unexpected), ("of another shape", misshapen))
        if names
    ]
    if faults:
        raise StartError(
            f"{checkpoint.path} does not fit its own configuration; tensors {'; '.join(faults)}. "
            "Download the whole checkpoint again, or give one whose files belong together."
        )


def _sizes(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape))


def _fill(target: torch.Tensor, piece: Piece, checkpoint: CheckpointTensors, rank: int, ranks: int) -> None:
    cut, rows = piece.parameter.cut, piece.shape[0]
    first, last = (rank * rows // ranks, (rank + 1) * rows // ranks) if cut == 0 else (0, rows)
    columns = slice(None)
    if cut == 1:
        width = piece.shape[1] // ranks
        columns = slice(rank * width, (rank + 1) * width)
    step = checkpoint.row_step(piece.name)
    rows_at_once = max(1, CHUNK_ELEMENTS // (torch.Size(piece.shape[1:]).numel() * step)) * step
    for begin in range(first, last, rows_at_once):
        end = min(begin + rows_at_once, last)
        chunk = checkpoint.read(piece.name, begin, end)
        at = piece.offset + begin - first
        target[at : at + end - begin].copy_(chunk[:, columns] if cut == 1 else chunk)
