"""Compiles the package's Triton kernels for a GPU that need not be here.

A file with Triton kernels lists the launches worth compiling as `AOT`, a tuple of `Launch`: one
typed specialisation each, the form in which the engine launches it. This module finds the lists,
compiles them, and reads registers, stack and shared memory from the machine code. It knows no
kernel.

    python -m tokenspeed_kernels.aot [NAME ...]     one JSON line a launch; NAME is part of a module's name

Invariant: it never touches a driver, so it says the same on every machine. TRITON_INTERPRET must be
unset, since interpreted kernels have no machine code.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

HOPPER = 90


@dataclass(frozen=True, slots=True)
class Launch:
    """A specialisation of `kernel`, a `triton.jit` function.

    `types` are those of its arguments that are not constexpr, in order and separated by blanks:
    "*bf16" a pointer aligned to 16 bytes, "i32" an integer, "i32:16" one that 16 divides, "fp32".
    `constants` are the constexpr ones, by name. A `hot` kernel must not spill registers. "PDL"
    among the constants makes it a programmatic dependent launch.
    """

    kernel: Any
    types: str
    constants: Mapping[str, object] = field(default_factory=dict)
    warps: int = 4
    stages: int = 3
    hot: bool = True


@dataclass(frozen=True, slots=True)
class Facts:
    """What the machine code of one launch needs: per thread, and shared memory per program."""

    kernel: str
    constants: Mapping[str, object]
    hot: bool
    registers: int
    stack_bytes: int
    shared_bytes: int


def triton_modules() -> list[str]:
    """Return the names of this package's modules that import triton themselves, sorted."""
    package = importlib.import_module("tokenspeed_kernels")
    found = pkgutil.walk_packages(package.__path__, "tokenspeed_kernels.")
    return sorted(module.name for module in found if module.name != __name__ and _imports_triton(module))


def launches(module: str) -> tuple[Launch, ...]:
    """Return the launches that `module` lists, empty if it has no list."""
    listed: tuple[Launch, ...] = getattr(importlib.import_module(module), "AOT", ())
    return listed


def compile_launch(launch: Launch, architecture: int = HOPPER) -> Facts:
    """Compile for an NVIDIA `architecture` (90 is sm_90) and return the facts. Triton caches what it compiled."""
    options = {"num_warps": launch.warps, "num_stages": launch.stages}
    if launch.constants.get("PDL"):
        options["launch_pdl"] = True
    compiled = triton.compile(_source(launch), target=GPUTarget("cuda", architecture, 32), options=options)
    registers, stack_bytes = _resources(compiled.asm["cubin"])
    name = f"{launch.kernel.__module__}.{launch.kernel.__name__}"
    return Facts(name, launch.constants, launch.hot, registers, stack_bytes, compiled.metadata.shared)


def _source(launch: Launch) -> Any:
    """Return the launch as Triton's compiler takes it."""
    return ASTSource(launch.kernel, *_signature(launch))


def _signature(launch: Launch) -> tuple[dict[str, str], dict[str, object], dict[tuple[int], list[list[object]]]]:
    """Return types by name, constants by name, and what divides which argument, by index."""
    names = launch.kernel.arg_names
    typed = [name for name in names if name not in launch.constants]
    types = launch.types.split()
    if len(typed) != len(types):
        raise ValueError(f"{launch.kernel.__name__} wants one type for each argument of {typed}, not {types}.")
    signature = dict.fromkeys(names, "constexpr")
    divisors: dict[tuple[int], list[list[object]]] = {}
    for name, text in zip(typed, types, strict=True):
        signature[name], _, divisor = text.partition(":")
        if divisor or text.startswith("*"):
            divisors[(names.index(name),)] = [["tt.divisibility", int(divisor or 16)]]
    return signature, dict(launch.constants), divisors


def _resources(cubin: bytes) -> tuple[int, int]:
    """Return registers and bytes of stack a thread; spilled registers lie on the stack."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        Path(file.name).write_bytes(cubin)
        command = [triton.knobs.nvidia.cuobjdump.path, "--dump-resource-usage", file.name]
        printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    figures = {name: int(value) for name, value in re.findall(r"\b(REG|STACK|LOCAL):(\d+)", printed)}
    return figures["REG"], figures["STACK"] + figures["LOCAL"]


def _imports_triton(module: pkgutil.ModuleInfo) -> bool:
    spec = module.module_finder.find_spec(module.name, None)
    origin = spec.origin if spec is not None else None
    return (
        origin is not None
        and origin.endswith(".py")
        and re.search(r"^import triton$", Path(origin).read_text(), re.MULTILINE) is not None
    )


def _facts(parts: list[str]) -> Iterator[Facts]:
    for module in triton_modules():
        if not parts or any(part in module for part in parts):
            yield from map(compile_launch, launches(module))


if __name__ == "__main__":
    for facts in _facts(sys.argv[1:]):
        print(json.dumps(asdict(facts)), flush=True)
