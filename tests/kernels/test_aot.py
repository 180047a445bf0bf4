"""Every Triton kernel compiles for sm_90 here, GPU or not, and the hot ones keep to their registers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tokenspeed_kernels import REGISTRY, aot

pytestmark = pytest.mark.long

REPOSITORY = Path(__file__).resolve().parents[2]
# What a program may have on an H100 or H200.
SHARED_BYTES_MAX = 227 * 1024

SPILLING = """
from tokenspeed_kernels import aot
from tokenspeed_kernels.gemm import triton_skinny
from tokenspeed_kernels.gemm.skinny_configs import Config

print(aot.compile_launch(triton_skinny._aot(Config(8, 1024, warps=1), 1, "bf16")).stack_bytes)
"""


def _python(*arguments: str) -> str:
    """Run Python without the interpreter of Triton, whose kernels have no machine code; return what it prints."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment |= {"TRITON_CACHE_DIR": str(REPOSITORY / ".cache" / "triton"), "PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_all_launches_compile_without_spills() -> None:
    """One line for each launch listed; its shared memory fits."""
    facts = [json.loads(line) for line in _python("-m", "tokenspeed_kernels.aot").splitlines()]
    assert len(facts) == sum(len(aot.launches(module)) for module in aot.triton_modules())
    for entry in facts:
        assert entry["stack_bytes"] == 0 or not entry["hot"], entry
        assert entry["shared_bytes"] <= SHARED_BYTES_MAX, entry
        assert entry["registers"] > 0


def test_a_spill_is_seen() -> None:
    """256 sums a thread beside two tiles of weights do not fit in its 255 registers."""
    assert int(_python("-c", SPILLING)) > 0


def test_every_triton_file_lists_its_launches() -> None:
    """A file that answers a question, or has a kernel, and no list would never be compiled here."""
    entries = {spec.entry.partition(":")[0] for spec in REGISTRY.specs}
    unlisted = [module for module in aot.triton_modules() if module in entries and not aot.launches(module)]
    assert unlisted == []
    assert "tokenspeed_kernels.gemm.triton_skinny" in entries & set(aot.triton_modules())


def test_types_must_fit_the_arguments() -> None:
    """A list that was not kept up with its kernel says so."""
    launch = aot.launches("tokenspeed_kernels.norm.triton_rms")[0]
    longer = aot.Launch(launch.kernel, launch.types + " i32", launch.constants)
    with pytest.raises(ValueError, match="one type for each argument"):
        aot._signature(longer)
