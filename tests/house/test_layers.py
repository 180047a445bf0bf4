"""The layers hold, and a planted violation is found."""

from __future__ import annotations

from pathlib import Path

import pytest
from checks.layers import violations

REPOSITORY = Path(__file__).resolve().parents[2]


def plant(root: Path, name: str, text: str) -> list[str]:
    """Return the violations of a tree that holds one file."""
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return list(violations(root))


def test_this_repository() -> None:
    assert list(violations(REPOSITORY)) == []


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("tokenspeed/ipc/ring.py", "from tokenspeed.engine import Engine", "may not import engine"),
        ("tokenspeed/ipc/ring.py", "def late():\n    import tokenspeed.server", "may not import server"),
        ("tokenspeed/ipc/ring.py", "from ..engine import x", "may not import engine"),
        ("tokenspeed/ipc/__init__.py", "from ..engine import x", "may not import engine"),
        ("tokenspeed/ipc/ring.py", "from tokenspeed import engine", "may not import engine"),
        ("tokenspeed/ipc/ring.py", "import importlib\nimportlib.import_module('tokenspeed.cli')", "may not import cli"),
        ("tokenspeed/text/template.py", "import tokenspeed.scheduling.scheduler", "may not import scheduling"),
        ("tokenspeed/text/template.py", "from tokenspeed.actors.runtime import Actor", "may not import actors"),
        ("tokenspeed/model/llama.py", "from tokenspeed.executor import pool", "may not import executor"),
        ("tokenspeed/actors/runtime.py", "from tokenspeed.text import template", "may not import text"),
        (
            "tokenspeed/actors/scheduler.py",
            "from tokenspeed.actors import tokenizer",
            "may not import actors.tokenizer",
        ),
        ("tokenspeed/engine/aio.py", "from tokenspeed.actors.tokenizer import main", "may not import actors.tokenizer"),
        ("tokenspeed/server/app.py", "import tokenspeed.ipc.ring", "may not import ipc"),
        ("tokenspeed/errors.py", "import numpy", "standard library and msgspec only"),
        ("tokenspeed/scheduling/scheduler.py", "if True:\n    import torch", "may import torch"),
        ("tokenspeed/text/fast.py", "from tokenspeed import _native", "may import tokenspeed._native"),
        ("tokenspeed/text/hf.py", "import transformers", "may import transformers"),
        ("tokenspeed/model/llama.py", "import triton.language", "may import triton"),
        ("tokenspeed/engine/aio.py", "import tokenspeed_tools.trace", "never the reverse"),
        ("tokenspeed/novelty.py", "import os", "in no layer"),
        ("tokenspeed/server/app.py", "from tokenspeed import novelty", "in no layer"),
        ("kernels/tokenspeed_kernels/norm.py", "from tokenspeed import config", "never import the engine"),
    ],
)
def test_a_violation_is_found(tmp_path: Path, name: str, text: str, reason: str) -> None:
    found = plant(tmp_path, name, text)
    assert len(found) == 1, found
    assert found[0].startswith(f"{name}:{text.count(chr(10)) + 1}: ")
    assert reason in found[0]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("tokenspeed/messages/base.py", "import msgspec, array\nfrom tokenspeed.errors import ErrorInfo"),
        ("tokenspeed/executor/executor.py", "import torch\nfrom tokenspeed.model.llama import Llama"),
        ("tokenspeed/actors/executor.py", "from tokenspeed.executor.executor import load_executor"),
        ("tokenspeed/engine/aio.py", "from tokenspeed.actors.supervisor import Supervisor"),
        ("tokenspeed/cli/main.py", "from tokenspeed import __version__\nfrom tokenspeed.server import app"),
        ("tokenspeed/model/loader.py", "from tokenspeed_kernels import norm\nfrom tokenspeed.formats import gguf"),
        ("tools/tokenspeed_tools/bench.py", "from tokenspeed.ipc import ring"),
    ],
)
def test_what_is_allowed(tmp_path: Path, name: str, text: str) -> None:
    assert plant(tmp_path, name, text) == []
