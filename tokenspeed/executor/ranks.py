"""The ranks that share one model on the CPU.

Owns the process group (gloo over loopback). Ranks meet through a file that their parent chose. All
ranks run the same plans; logits are gathered on each, bit for bit the same, and each draws for
itself, so nobody has to be told the ids.

Invariant: collectives are called in the same order on every rank, since that order follows from
the plan and the model.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed

from tokenspeed.errors import StartError
from tokenspeed.model.placement import Group, OneRank

# torch has no types for what is used of it here.
_distributed: Any = torch.distributed

MEET_TIMEOUT = timedelta(seconds=60)
# A rank may wait this long for another inside a step before the step fails.
STEP_TIMEOUT = timedelta(seconds=120)


class GlooGroup:
    """Several processes of one host."""

    def __init__(self, rank: int, ranks: int, rendezvous: str) -> None:
        """Meet the other ranks; raises `StartError` if they do not come."""
        self.rank = rank
        self.ranks = ranks
        if not Path(rendezvous).parent.is_dir():
            raise StartError(
                f"Rank {rank} of {ranks} is to meet the others at {rendezvous}, whose folder is not there."
            )
        try:
            store = _distributed.FileStore(rendezvous, ranks)
            store.set_timeout(MEET_TIMEOUT)
            options = _distributed.ProcessGroupGloo._Options()
            options._devices = [_distributed.ProcessGroupGloo.create_device(hostname="127.0.0.1")]
            options._timeout = STEP_TIMEOUT
            self._group = _distributed.ProcessGroupGloo(store, rank, ranks, options)
        except RuntimeError as error:
            raise StartError(f"Rank {rank} of {ranks} could not meet the others at {rendezvous}: {error}") from error

    def all_reduce(self, value: torch.Tensor) -> torch.Tensor:
        """Return the sum over ranks, in place."""
        self._group.allreduce([value]).wait()
        return value

    def all_gather(self, value: torch.Tensor) -> torch.Tensor:
        """Return the values of all ranks joined along the last axis."""
        parts = [torch.empty_like(value) for _ in range(self.ranks)]
        self._group.allgather([parts], [value.contiguous()]).wait()
        return torch.cat(parts, dim=-1)


def join_group(rank: int, ranks: int, rendezvous: str) -> Group:
    """Return the group of `ranks`, alone or through the file `rendezvous`."""
    if ranks == 1:
        return OneRank()
    if not rendezvous:
        raise StartError(f"{ranks} ranks need a rendezvous file to find each other; none was given.")
    return GlooGroup(rank, ranks, rendezvous)
