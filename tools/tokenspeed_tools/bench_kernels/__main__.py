"""`python -m tokenspeed_tools.bench_kernels [FAMILY ...] [--json FILE] [--jobs N]`.

Collects the `cases()` of the families, times each on the GPU and prints a table. Exit status 1 if a
case failed. With `--jobs`, as many processes first run every case once between them, so that the
compilers work side by side and the one that times finds all kernels in the cache.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import itertools
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

from tokenspeed_tools.bench_kernels.case import Case
from tokenspeed_tools.bench_kernels.report import Timed, json_lines, row, winners
from tokenspeed_tools.bench_kernels.timing import Ceilings, ceilings, time_us

FAMILIES = ("attention", "gemm", "pointwise", "sampling")
# Timed when named: every candidate configuration of a family.
SWEEPS = ("gemm_sweep",)


def main(argv: Sequence[str]) -> int:
    """Run it; `argv` is without the program's name."""
    present = [name for name in (*FAMILIES, *SWEEPS) if importlib.util.find_spec(f"{__package__}.{name}")]
    parser = argparse.ArgumentParser(prog="bench_kernels", description="Time kernels on the GPU.")
    parser.add_argument("families", nargs="*", choices=[*present, []], metavar="FAMILY", help=", ".join(present))
    parser.add_argument("--json", type=Path, metavar="FILE", help="append one JSON line a case")
    parser.add_argument("--jobs", type=int, default=0, metavar="N", help="compile in N processes first")
    parser.add_argument(
        "--compile", type=int, nargs=2, metavar=("K", "N"), help="run cases K, K + N, ... once, no more"
    )
    options = parser.parse_args(argv)
    families = options.families or [name for name in present if name not in SWEEPS]
    if not torch.cuda.is_available():
        print("bench_kernels: there is no GPU here.", file=sys.stderr)
        return 2
    if options.compile:
        return _compile(families, *options.compile)
    if options.jobs:
        _compile_side_by_side(families, options.jobs)
    return _time(families, options.json)


def _cases(families: Sequence[str]) -> Iterator[Case]:
    for family in families:
        yield from importlib.import_module(f"{__package__}.{family}").cases()


def _compile(families: Sequence[str], first: int, step: int) -> int:
    for case in itertools.islice(_cases(families), first, None, step):
        _attempt(case)
    return 0


def _compile_side_by_side(families: Sequence[str], jobs: int) -> None:
    command = [sys.executable, "-m", str(__package__), *families, "--compile"]
    workers = [subprocess.Popen([*command, str(job), str(jobs)]) for job in range(jobs)]
    for worker in workers:
        worker.wait()


def _attempt(case: Case) -> str:
    """Run the case once; return what went wrong, or ""."""
    try:
        case.run()
        torch.cuda.synchronize()
    # A candidate may ask for more than the chip has; the others are timed all the same.
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def _time(families: Sequence[str], target: Path | None) -> int:
    limits = ceilings()
    print(f"{torch.cuda.get_device_name()}: {_said(limits)}", flush=True)
    results = []
    for case in _cases(families):
        error = _attempt(case)
        results.append(Timed(case, None if error else time_us(case), error))
        print(row(results[-1], limits), flush=True)
    if best := list(winners(results)):
        print("Fastest:", *best, sep="\n")
    if target is not None:
        with target.open("a") as file:
            file.writelines(f"{line}\n" for line in json_lines(results, limits))
    return int(any(timed.us is None for timed in results))


def _said(limits: Ceilings) -> str:
    copy, product = limits.copy_bytes_per_s / 1e9, limits.product_flops_per_s / 1e12
    return f"a copy moves {copy:.0f} GB/s, a bf16 product runs at {product:.0f} TFLOP/s"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
