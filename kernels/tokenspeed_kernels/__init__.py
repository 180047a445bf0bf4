"""Operations of a language model, asked for by shape, dtype and traits.

One folder per op family: its `__init__` states the question (a typed protocol with shapes) and
lists the answers, each answer lies in a file of its own. The torch references define what is right
and run everywhere. This package knows nothing of the engine.
"""

from tokenspeed_kernels.catalogue import REGISTRY, selector
from tokenspeed_kernels.registry import Registry
from tokenspeed_kernels.selection import Selector, override_kernels
from tokenspeed_kernels.spec import KernelError, KernelSpec, Platform, Question, ask

__all__ = [
    "REGISTRY",
    "KernelError",
    "KernelSpec",
    "Platform",
    "Question",
    "Registry",
    "Selector",
    "ask",
    "override_kernels",
    "selector",
]
