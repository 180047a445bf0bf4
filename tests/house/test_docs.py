"""The documents say what is there: links, doors of the Makefile, fields of the HTTP API, pins."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from tokenspeed.client import Client
from tokenspeed.config import EngineConfig
from tokenspeed.sampling import SamplingParams
from tokenspeed.server.schema import NEUTRAL, ChatRequest, CompletionRequest, DetokenizeRequest, TokenizeRequest
from tokenspeed.server.schema_generate import GenerateBody, SamplingBody

REPOSITORY = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted([*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/**/*.md")])
HTTP_API = (REPOSITORY / "docs/http-api.md").read_text()
PYTHON_API = (REPOSITORY / "docs/python-api.md").read_text()


def anchors(path: Path) -> set[str]:
    """Return the anchors that headings of a document have."""
    headings = re.findall(r"^#+ (.+)$", path.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_links_and_doors_exist(path: Path) -> None:
    text = path.read_text()
    for link, anchor in re.findall(r"\]\(([^)#:]*)(?:#([^)]*))?\)", text):
        target = path.parent / link if link else path
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), f"{link}#{anchor}"
    doors = set(re.findall(r"^([a-z-]+):.*##", (REPOSITORY / "Makefile").read_text(), re.MULTILINE))
    for door in re.findall(r"`make ([a-z]+(?:-[a-z]+)*)", text):
        assert door in doors or door.startswith("check-"), door


def section(heading: str) -> str:
    """Return what stands under the heading of a path."""
    return HTTP_API.partition(f"\n## {heading}")[2].partition("\n## ")[0]


def test_every_field_of_a_chat_request_is_described() -> None:
    refused = HTTP_API.partition("### What is refused")[2].partition("## POST")[0]
    table = HTTP_API.partition("| field |")[2].partition("The headers")[0]
    for field in ChatRequest.__struct_fields__:
        assert f"`{field}`" in (refused if field in NEUTRAL else table), field


@pytest.mark.parametrize(
    ("heading", "kinds"),
    [
        ("POST /v1/completions", (CompletionRequest,)),
        ("POST /generate", (GenerateBody, SamplingBody)),
        ("POST /tokenize", (TokenizeRequest, DetokenizeRequest)),
    ],
)
def test_every_field_of_every_other_request_is_described(heading: str, kinds: tuple[type[msgspec.Struct], ...]) -> None:
    for kind in kinds:
        for field in kind.__struct_fields__:
            assert f"`{field}`" in section(heading), field


def test_every_method_of_the_client_is_described() -> None:
    for name in vars(Client):
        assert name.startswith("_") or f"`{name}(" in PYTHON_API, name


def test_every_setting_of_the_python_api_is_described() -> None:
    for field in (*EngineConfig.__struct_fields__, *SamplingParams.__struct_fields__):
        assert field == "model" or re.search(rf"\b{field}\b", PYTHON_API), field


def test_the_demo_model_is_the_same_everywhere() -> None:
    pin = re.search(r"^DEMO_MODEL := (\S+)$", (REPOSITORY / "Makefile").read_text(), re.MULTILINE)
    assert pin is not None
    from tokenspeed.demo import REQUIREMENT

    assert pin.group(1) == REQUIREMENT


def test_every_code_that_the_server_answers_is_described() -> None:
    elsewhere = {"cancelled", "duplicate_request", "start_failed", "out_of_memory", "forbidden", "invalid_msgpack"} | {
        "gpu_lost",
        "executor_changed",
    }
    clients = {"no_server", "unreachable"}
    for path in REPOSITORY.glob("tokenspeed/**/*.py"):
        for code in re.findall(r"\bcode ?= ?\"([a-z_]+)\"", path.read_text()):
            assert f"`{code}`" in HTTP_API or code in elsewhere | clients, f"{path}: {code}"


def test_the_guide_to_a_new_model_names_what_is_there() -> None:
    guide = (REPOSITORY / "docs/add-a-model.md").read_text()
    paths = set(re.findall(r"`((?:tokenspeed|tests|kernels|tools)/[\w./]+)", guide))
    assert len(paths) > 10
    sources = "".join((REPOSITORY / path).read_text() for path in paths if path.endswith(".py"))
    assert not [path for path in paths if not (REPOSITORY / path).exists()]
    for name in re.findall(r"`([A-Z_]\w+)`", guide):
        assert re.search(rf"\b{name}\b", sources), name
    for line in re.findall(r"^ +(?:class|chain|def|super|self)\b.+$", guide, re.MULTILINE):
        assert line.strip().split("(")[0] in sources, line
