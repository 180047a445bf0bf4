"""Holds the layers: who may import whom, lazy and type-checking imports included.

Reads the source, never runs it. Knows the table of docs/architecture.md and nothing else; a new
package must be added to `LAYERS` here before anything in it may be imported.

    python tools/checks/layers.py [ROOT]     prints one line a violation, exits 1 if there is one
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

# Layer by layer; the name of a group is a path below `tokenspeed`, the longest that fits counts.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("errors", "config", "sampling", "generation", "caller", "demo", "machine", "messages", "points", "kernel_slices"),
    ("ipc", "capi", "formats", "_native"),
    ("actors", "observe"),
    ("text", "scheduling", "model", "executor"),
    ("actors.tokenizer", "actors.scheduler", "actors.executor", "actors.detokenizer", "actors.grammar"),
    ("engine",),
    ("server", "client", "cli"),
)
# What each layer sees below itself. Inside a layer, groups of 0 to 2 and 6 may use each other.
BELOW = ((), (0,), (0, 1), (0, 1), (0, 1, 2, 3), (0, 1, 2), (0, 5))
SOCIABLE = {0, 1, 2, 6}
# An executor runs the layers of a model; together they are the model side.
EXTRA = {("executor", "model")}

THIRD_PARTY_OF_LAYER_0 = {"msgspec"}
# Who alone may import what.
RESERVED = {
    "torch": {
        "tokenspeed.model",
        "tokenspeed.executor",
        "tokenspeed_kernels",
        "tokenspeed_tools.bench_cpu",
        "tokenspeed_tools.bench_kernels",
        "tokenspeed_tools.bench_gpu.steps",
        "tokenspeed_tools.bench_suite.step_kernels",
    },
    "tokenspeed_kernels": {"tokenspeed.model", "tokenspeed.executor", "tokenspeed_kernels", "tokenspeed_tools"},
    "triton": {"tokenspeed_kernels"},
    "flashinfer": {"tokenspeed_kernels"},
    "cutlass": {"tokenspeed_kernels"},
    "transformers": {"tokenspeed_tools.bench_cpu.in_process"},
    "tokenspeed._native": {"tokenspeed.capi", "tokenspeed.ipc", "tokenspeed.scheduling", "tokenspeed_tools"},
}
ROOTS = {"tokenspeed": ".", "tokenspeed_kernels": "kernels", "tokenspeed_tools": "tools"}


class Import(NamedTuple):
    """`module` is imported at `line` of the file that holds `importer`."""

    importer: str
    module: str
    line: int


def module_name(path: Path, root: Path) -> str:
    """Return the dotted name of the file `path` in the source root `root`."""
    parts = list(path.relative_to(root).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(path: Path, root: Path) -> Iterator[Import]:
    """Yield every import in the file, wherever it stands, and `import_module` of a literal."""
    name = module_name(path, root)
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text(), str(path))):
        match node:
            case ast.Import(names=names):
                yield from (Import(name, alias.name, node.lineno) for alias in names)
            case ast.ImportFrom(module=module, names=names, level=level):
                base = ".".join(package.split(".")[: len(package.split(".")) - level + 1]) if level else ""
                source = ".".join(filter(None, (base, module)))
                yield from (Import(name, f"{source}.{alias.name}", node.lineno) for alias in names)
            case ast.Call(func=ast.Attribute(attr="import_module") | ast.Name(id="import_module" | "__import__")):
                if node.args and isinstance(node.args[0], ast.Constant):
                    yield Import(name, str(node.args[0].value), node.lineno)


def inside(module: str, package: str) -> bool:
    """Return whether `module` is `package` or lies in it."""
    return module == package or module.startswith(package + ".")


def group_of(module: str) -> tuple[str, int] | None:
    """Return (group, layer) of a module below `tokenspeed`; None for the package itself."""
    found = [
        (group, layer)
        for layer, groups in enumerate(LAYERS)
        for group in groups
        if inside(module, f"tokenspeed.{group}")
    ]
    return max(found, key=lambda entry: len(entry[0]), default=None)


def fault(entry: Import) -> str:
    """Return why this import is not allowed, or ""."""
    for module, owners in RESERVED.items():
        if inside(entry.module, module) and not any(inside(entry.importer, owner) for owner in owners):
            return f"only {', '.join(sorted(owners)) or 'tests'} may import {module}"
    if inside(entry.importer, "tokenspeed_kernels") and inside(entry.module, "tokenspeed"):
        return "kernels never import the engine"
    if not inside(entry.importer, "tokenspeed"):
        return ""
    if inside(entry.module, "tokenspeed_tools"):
        return "tools import the engine, never the reverse"
    importer = group_of(entry.importer)
    if importer is None:
        return "" if entry.importer == "tokenspeed" else "this module is in no layer: add it to LAYERS"
    if inside(entry.module, "tokenspeed"):
        return fault_between(importer, entry.module)
    top = entry.module.partition(".")[0]
    if importer[1] == 0 and top not in sys.stdlib_module_names | THIRD_PARTY_OF_LAYER_0:
        return "layer 0 uses the standard library and msgspec only"
    return ""


def fault_between(importer: tuple[str, int], module: str) -> str:
    """Return why a group may not import a module of `tokenspeed`, or ""."""
    target = group_of(module)
    if target is None:
        known = module.partition(".")[2] in ("", "__version__")
        return "" if known else f"{module} is in no layer: add it to LAYERS"
    same_layer = importer[1] == target[1] and importer[1] in SOCIABLE
    if importer[0] == target[0] or same_layer or target[1] in BELOW[importer[1]]:
        return ""
    if (importer[0], target[0]) in EXTRA:
        return ""
    return f"{importer[0]} (layer {importer[1]}) may not import {target[0]} (layer {target[1]})"


def violations(repository: Path) -> Iterator[str]:
    """Yield "file:line: importer imports module: reason" for each forbidden import."""
    for package, folder in ROOTS.items():
        root = repository / folder
        for path in sorted((root / package).rglob("*.py")):
            for entry in imports_of(path, root):
                if reason := fault(entry):
                    where = f"{path.relative_to(repository)}:{entry.line}"
                    yield f"{where}: {entry.importer} imports {entry.module}: {reason}"


def main() -> int:
    """Print the violations."""
    repository = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parents[2]
    found = list(violations(repository))
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
