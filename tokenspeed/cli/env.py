"""`tokenspeed env`: versions and machine, to be pasted into a report of a bug.

Owns the questions. torch is not imported: its build is read from the file that says it. Nothing of
the user is told beyond what a bug may depend on; the home folder shows as `~`.

Invariant: a question that cannot be answered gives "unknown", never an error.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import platform
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from tokenspeed import __version__
from tokenspeed.cli.parser import Parser
from tokenspeed.cli.screen import amount
from tokenspeed.demo import find_demo
from tokenspeed.machine import core_limit, memory_limit_bytes

PACKAGES = (
    "torch",
    "numpy",
    "msgspec",
    "cffi",
    "posix-ipc",
    "uvloop",
    "uvicorn",
    "httptools",
    "starlette",
    "jinja2",
    "tokenizers",
    "safetensors",
    "gguf",
    "huggingface-hub",
    "triton",
)
CPU_FLAGS = ("avx2", "avx512f", "avx512_bf16", "avx512_vnni", "amx_tile", "asimd")
UNKNOWN = "unknown"

Facts = dict[str, dict[str, str]]


def main(argv: list[str]) -> int:
    """Run the command and return its exit code."""
    reader = Parser("tokenspeed env", "Tell versions and machine, for reports of bugs.")
    reader.add_argument("--json", action="store_true", help="as JSON")
    options = reader.read(argv)
    facts = collect()
    print(json.dumps(facts, indent=2) if options.json else as_text(facts))
    return 0


def collect() -> Facts:
    """Return the facts by topic."""
    return {
        "tokenspeed": {
            "version": __version__,
            "folder": _home(str(Path(__file__).resolve().parents[1])),
            "native module": _native(),
            "demo model": _ask(_demo),
        },
        "python": {
            "version": platform.python_version(),
            "implementation": platform.python_implementation(),
            "executable": _home(sys.executable),
        },
        "platform": {
            "system": platform.platform(),
            "libc": _ask(lambda: " ".join(part for part in platform.libc_ver() if part)),
            "container": "yes" if Path("/.dockerenv").exists() or Path("/run/.containerenv").exists() else "not seen",
        },
        "cpu": {
            "model": _ask(cpu_model),
            "cores": f"{os.cpu_count()}, of which {len(os.sched_getaffinity(0))} may be used",
            "limit": _ask(_cpu_limit),
            "flags": _ask(_cpu_flags),
        },
        "memory": {
            "total": _ask(lambda: _meminfo("MemTotal")),
            "available": _ask(lambda: _meminfo("MemAvailable")),
            "limit": _ask(_memory_limit),
            "/dev/shm": _ask(_shm),
        },
        "torch": {"build": _ask(_torch_build), "nvidia driver": _ask(_nvidia)},
        "packages": {name: _version(name) for name in PACKAGES},
    }


def as_text(facts: Facts) -> str:
    """Return `facts` as lines for people."""
    lines = []
    for topic, answers in facts.items():
        lines.append(f"{topic}:")
        lines += [f"  {name + ':':<16} {answer}" for name, answer in answers.items()]
    return "\n".join(lines)


def _ask(question: Callable[[], str]) -> str:
    try:
        return question() or UNKNOWN
    except (OSError, ValueError, LookupError, AttributeError):
        return UNKNOWN


def _home(text: str) -> str:
    try:
        home = str(Path.home())
    except RuntimeError:
        return text
    return f"~{text.removeprefix(home)}" if text.startswith(f"{home}/") else text


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _native() -> str:
    spec = importlib.util.find_spec("tokenspeed._native")
    return _home(spec.origin) if spec and spec.origin else "not built"


def _demo() -> str:
    file = find_demo()
    return f"{_home(str(file))} ({amount(file.stat().st_size, 'B')})" if file else "not installed"


def cpu_model() -> str:
    """Return the processor's name."""
    text = Path("/proc/cpuinfo").read_text()
    found = re.search(r"^(?:model name|Model)\s*:\s*(.+)$", text, re.MULTILINE)
    return found[1] if found else platform.machine()


def _cpu_flags() -> str:
    found = re.search(r"^(?:flags|Features)\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    present = set(found[1].split()) if found else set()
    return " ".join(flag for flag in CPU_FLAGS if flag in present) or "none of " + " ".join(CPU_FLAGS)


def _cpu_limit() -> str:
    limit = core_limit()
    return "none" if limit is None else f"{limit:g} cores"


def _meminfo(field: str) -> str:
    found = re.search(rf"^{field}:\s+(\d+) kB$", Path("/proc/meminfo").read_text(), re.MULTILINE)
    return amount(int(found[1]) * 1024, "B") if found else UNKNOWN


def _memory_limit() -> str:
    limit = memory_limit_bytes()
    return "none" if limit is None else amount(limit, "B")


def _shm() -> str:
    usage = shutil.disk_usage("/dev/shm")
    return f"{amount(usage.total, 'B')}, {amount(usage.free, 'B')} free"


def _torch_build() -> str:
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        return "not installed"
    text = (Path(spec.submodule_search_locations[0]) / "version.py").read_text()
    named = dict(re.findall(r"^(__version__|cuda|hip|git_version)\b[^=]*=\s*(.+)$", text, re.MULTILINE))
    return ", ".join(f"{name.strip('_')} {value.strip(chr(39))}" for name, value in named.items())


def _nvidia() -> str:
    path = Path("/proc/driver/nvidia/version")
    return path.read_text().splitlines()[0] if path.exists() else "none"
