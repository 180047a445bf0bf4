"""The bench of the kernels: rings, table, winners. Timing itself takes a GPU."""

from __future__ import annotations

import importlib

import pytest
import torch
from tokenspeed_tools.bench_kernels.case import Case
from tokenspeed_tools.bench_kernels.report import Timed, row, winners
from tokenspeed_tools.bench_kernels.timing import CALLS_MAX, ROTATED_BYTES, Ceilings, Ring, time_us

LIMITS = Ceilings(4e12, 8e14)


def _timed(name: str, us: float | None, moved: int = 0, done: int = 0) -> Timed:
    return Timed(Case(name, lambda: None, moved, done), us, "" if us else "OutOfResources: shared memory")


@pytest.mark.parametrize(("item_bytes", "copies"), [(1 << 30, 1), (ROTATED_BYTES // 4, 4), (0, CALLS_MAX)])
def test_a_ring_passes_the_cache_and_turns(item_bytes: int, copies: int) -> None:
    ring = Ring(object, item_bytes)
    seen = [ring.next() for _ in range(2 * copies)]
    assert seen[:copies] == seen[copies:]
    assert len(set(map(id, seen))) == copies


def test_a_row_gives_rates_and_their_share_of_the_chip() -> None:
    assert row(_timed("both", 10.0, 20_000_000, 4_000_000_000), LIMITS).split()[1:] == [
        *("10.00", "us", "2000", "GB/s", "50%", "400.0", "TFLOP/s", "50%")
    ]
    assert row(_timed("neither", 1.5), LIMITS).split() == ["neither", "1.50", "us"]
    assert "failed: OutOfResources" in row(_timed("broken", None), LIMITS)


def test_the_fastest_variant_of_each_group_wins() -> None:
    results = [
        _timed("a / x", 3.0),
        _timed("a / y", 2.0),
        _timed("b", 1.0),
        _timed("a / z", None),
        _timed("c / x", 1.0),
    ]
    assert list(winners(results)) == ["    a: y,  # 2.00 us"]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="times a GPU")
@pytest.mark.parametrize("graph", [True, False])
def test_times_are_plausible(graph: bool) -> None:
    """Copying 64 MiB moves 128: more than 20 us on any GPU there is, less than a millisecond on those we know."""
    source = torch.ones(1 << 26, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    assert 20 < time_us(Case("copy", lambda: target.copy_(source), graph=graph)) < 1000


@pytest.mark.skipif(torch.cuda.is_available(), reason="would time everything")
def test_without_a_gpu_it_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    main = importlib.import_module("tokenspeed_tools.bench_kernels.__main__").main
    assert main([]) == 2
    assert "no GPU" in capsys.readouterr().err
