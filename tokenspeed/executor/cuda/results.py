"""What a step brings, from where it comes down.

Owns the form of what is reported. It does not know how ids are chosen or scored.

Invariant: a row without an id is told as failed, and no other row of its step notices.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from tokenspeed.executor.asks import packed
from tokenspeed.executor.completion import StepIds
from tokenspeed.executor.cuda.buffers import Download
from tokenspeed.executor.pools import Ints
from tokenspeed.messages.scheduler import ROW_FAILED


class Launched(NamedTuple):
    """A step under way: how many likeliest ids each sampled row, and each scored token, brings along.

    Both are int64 [n]; -1 is a row that tells none. `scores` is where entries of tokens come down.
    """

    tops: Ints
    score_tops: Ints
    scores: torch.Tensor | None


def read(launched: Launched, download: Download, copy: int) -> StepIds:
    """Return what a step has brought down in `copy`; it has ended."""
    ids, tops = download.read(copy, len(launched.tops)), launched.tops
    good = ids >= 0
    counts = np.where(good, 1, ROW_FAILED).astype(np.int32)
    told = good & (tops >= 0)
    entries = packed(download.read_entries(copy, len(tops))[told], tops[told]) if told.any() else b""
    scores = b"" if launched.scores is None else packed(launched.scores.numpy(), launched.score_tops)
    return StepIds(counts.tobytes(), ids[good].tobytes(), entries, scores)
