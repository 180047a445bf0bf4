"""Fills the parameters of a model from a checkpoint.

Owns the comparison of what a model needs with what a checkpoint has, and the copy of this rank's
share, some rows at a time. Only the share of a rank is ever in its memory.

Invariant: no parameter is touched before every tensor is known to be there and to have its shape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from tokenspeed_kernels.gemm.packed_weight import BLOCK

from tokenspeed.errors import StartError
from tokenspeed.model.checkpoint import CheckpointTensors
from tokenspeed.model.module import Module, Parameter
from tokenspeed.model.quants import Quants, common_form, pack_quants

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
    return sum(_parameter_bytes(parameter, ranks, dtype) for _, parameter in model.parameters())


def _parameter_bytes(parameter: Parameter, ranks: int, dtype: torch.dtype) -> int:
    shape = parameter.shape(ranks)
    if parameter.form is not None:
        return parameter.form.bytes(*shape)
    return torch.Size(shape).numel() * dtype.itemsize


def choose_forms(model: Module, checkpoint: CheckpointTensors, ranks: int) -> None:
    """Let every matrix of `model` that can be kept as whole numbers be kept so, as `checkpoint` has it."""
    for path, parameter in model.parameters():
        names = [piece.name for piece in _pieces(path, parameter, ranks) if piece.name in checkpoint.shapes]
        if parameter.packs and names and parameter.shape(ranks)[1] % BLOCK == 0:
            parameter.form = common_form(checkpoint.form(name) for name in names)


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
    done = 0
    for path, parameter in model.parameters():
        own = list(_pieces(path, parameter, ranks))
        if parameter.form is not None:
            parts = [part for piece in own for part in _quants(piece, checkpoint, rank, ranks)]
            parameter.keep(pack_quants(parts, parameter.form))
        else:
            target = parameter.allocate(ranks, dtype, device)
            for piece in own:
                _fill(target, piece, checkpoint, rank, ranks)
        done += sum(torch.Size(piece.shape).numel() for piece in own)
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
    columns = _columns(piece, rank, ranks)
    at = piece.offset
    for first, last in _chunks(piece, checkpoint, rank, ranks):
        chunk = checkpoint.read(piece.name, first, last)
        target[at : at + last - first].copy_(chunk if columns is None else chunk[:, columns])
        at += last - first


def _quants(piece: Piece, checkpoint: CheckpointTensors, rank: int, ranks: int) -> Iterator[Quants]:
    columns = _columns(piece, rank, ranks)
    for first, last in _chunks(piece, checkpoint, rank, ranks):
        part = checkpoint.quants(piece.name, first, last)
        if columns is not None:
            blocks = slice(columns.start // BLOCK, columns.stop // BLOCK)
            low = None if part.low is None else part.low[:, blocks]
            part = Quants(part.q[:, columns], part.scale[:, blocks], low)
        yield part


def _columns(piece: Piece, rank: int, ranks: int) -> slice | None:
    """Return this rank's columns, None for all."""
    if piece.parameter.cut != 1:
        return None
    width = piece.shape[1] // ranks
    return slice(rank * width, (rank + 1) * width)


def _chunks(piece: Piece, checkpoint: CheckpointTensors, rank: int, ranks: int) -> Iterator[tuple[int, int]]:
    """Yield (first, last) of this rank's rows, some at a time."""
    rows = piece.shape[0]
    begin, end = (rank * rows // ranks, (rank + 1) * rows // ranks) if piece.parameter.cut == 0 else (0, rows)
    step = checkpoint.row_step(piece.name)
    rows_at_once = max(1, CHUNK_ELEMENTS // (torch.Size(piece.shape[1:]).numel() * step)) * step
    for first in range(begin, end, rows_at_once):
        yield first, min(first + rows_at_once, end)
