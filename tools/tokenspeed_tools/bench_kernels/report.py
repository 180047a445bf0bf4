"""Turns times into a table, the winners of each group, and JSON lines.

A case is named "GROUP / VARIANT" when several ways to do the same are timed; the fastest variant of
a group is listed once more at the end. Knows no kernel.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch

from tokenspeed_tools.bench_kernels.case import Case
from tokenspeed_tools.bench_kernels.timing import Ceilings


@dataclass(frozen=True, slots=True)
class Timed:
    """A case and the microseconds of one call; none, and why, if it failed."""

    case: Case
    us: float | None
    error: str = ""

    @property
    def bytes_per_s(self) -> float | None:
        """Bytes that the case must move, by its time."""
        return 1e6 * self.case.bytes / self.us if self.case.bytes and self.us else None

    @property
    def flops_per_s(self) -> float | None:
        """Operations that the case must do, by its time."""
        return 1e6 * self.case.flops / self.us if self.case.flops and self.us else None


def row(timed: Timed, limits: Ceilings) -> str:
    """Return the case's line of the table."""
    if timed.us is None:
        return f"{timed.case.name:64} failed: {timed.error}"
    moved, done = timed.bytes_per_s, timed.flops_per_s
    columns = (
        f"{timed.case.name:64}",
        f"{timed.us:10.2f} us",
        f"{moved / 1e9:7.0f} GB/s {100 * moved / limits.copy_bytes_per_s:4.0f}%" if moved else " " * 18,
        f"{done / 1e12:7.1f} TFLOP/s {100 * done / limits.product_flops_per_s:4.0f}%" if done else "",
    )
    return " ".join(columns).rstrip()


def winners(results: Iterable[Timed]) -> Iterator[str]:
    """Yield "GROUP: VARIANT," for the fastest of each group of several, with its time behind."""
    groups: dict[str, list[tuple[float, str]]] = {}
    for timed in results:
        group, _, variant = timed.case.name.partition(" / ")
        if variant and timed.us is not None:
            groups.setdefault(group, []).append((timed.us, variant))
    for group, entries in groups.items():
        us, variant = min(entries)
        if len(entries) > 1:
            yield f"    {group}: {variant},  # {us:.2f} us"


def json_lines(results: Iterable[Timed], limits: Ceilings) -> Iterator[str]:
    """Yield one line a case that was timed, each saying where."""
    git = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    where = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "copy_gb_per_s": round(limits.copy_bytes_per_s / 1e9),
        "product_tflop_per_s": round(limits.product_flops_per_s / 1e12),
        "commit": git.stdout.strip(),
    }
    for timed in results:
        if timed.us is not None:
            line: dict[str, object] = {"kind": "kernel", "name": timed.case.name, "us": round(timed.us, 2)}
            if timed.bytes_per_s:
                line["gb_per_s"] = round(timed.bytes_per_s / 1e9)
            if timed.flops_per_s:
                line["tflop_per_s"] = round(timed.flops_per_s / 1e12, 1)
            yield json.dumps(line | where)
