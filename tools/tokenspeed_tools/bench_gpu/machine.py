"""Where a figure comes from: the chip and the commit that its line names."""

from __future__ import annotations

import os
import platform
import subprocess


def chip(device: str) -> str:
    """Return the GPU's name, or the CPU's kind and cores."""
    if device == "cuda":
        names = said("nvidia-smi", "--query-gpu=name", "--format=csv,noheader").splitlines()
        return names[0] if names else "NVIDIA GPU"
    return f"{platform.machine()}, {os.cpu_count()} cores"


def commit() -> str:
    """Return the short name of the commit checked out here, "unknown" outside a repository."""
    return said("git", "rev-parse", "--short", "HEAD") or "unknown"


def said(*words: str) -> str:
    """Return what the command `words` prints, "" if it is not there or fails."""
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
