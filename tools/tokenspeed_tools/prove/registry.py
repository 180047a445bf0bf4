"""What is to be shown: the commands listed here and every test marked `prove`.

Knows how a proof is started and what passes as one; does not run any.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

Figures = Mapping[str, Any]
NODE_LINE = "PROOF-NODE "
LIMIT_S = 900.0


class Proof(NamedTuple):
    """One thing to show. `fault` looks at the figures and says what is wrong with them, or ""."""

    name: str
    shows: str
    command: tuple[str, ...]
    limit_s: float = LIMIT_S
    fault: Callable[[Figures], str] = lambda figures: ""


def ring_fault(figures: Figures) -> str:
    """Hold the rings to what they promise against ZeroMQ."""
    limits = {
        "pingpong_p50_ratio_to_zmq": (0.0, 0.25),
        "throughput_200b_ratio_to_zmq": (3.0, float("inf")),
        "throughput_200kb_ratio_to_zmq": (2.0, float("inf")),
    }
    for name, (low, high) in limits.items():
        if name not in figures or not low <= figures[name] <= high:
            return f"{name} is {figures.get(name)}, {low} to {high} is promised"
    return ""


COMMANDS = (
    Proof(
        "doctor in a minimal root",
        "each missing piece of a Debian root, taken away in turn, gives its line in under a second",
        ("tests/house/minimal_root.sh",),
        fault=lambda figures: "" if figures.get("slowest_cpu_ms", 10_000) < 1_000 else "slower than a second",
    ),
    Proof(
        "rings against ZeroMQ",
        "a round trip takes at most a quarter of the time, and 3 (200 bytes) and 2 (200 KB) times as much goes through",
        (sys.executable, "-m", "tokenspeed_tools.bench_ring"),
        fault=ring_fault,
    ),
)


def marked_tests(repository: Path, under: str = "tests") -> list[Proof]:
    """Return a proof for each test function marked `prove` below a folder, its parameters together."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-m", "prove", "--list-proofs", under]
    done = subprocess.run(command, cwd=repository, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 5):  # 5: no test is marked
        raise SystemExit(f"prove: the tests cannot be collected:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    proofs = {}
    for line in done.stdout.splitlines():
        if line.startswith(NODE_LINE):
            entry = json.loads(line.removeprefix(NODE_LINE))
            run = (sys.executable, "-m", "pytest", "-m", "prove", "--tb=short", entry["node"])
            proofs[entry["node"]] = Proof(entry["node"], entry["shows"], run, entry["limit_s"] or LIMIT_S)
    return list(proofs.values())


def everything(repository: Path) -> list[Proof]:
    """Return all proofs, short commands first."""
    return [*COMMANDS, *marked_tests(repository)]
