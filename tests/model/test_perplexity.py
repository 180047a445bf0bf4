"""The CPU's default mode, whole numbers of 4 and 8 bits, is held to the perplexity of float32."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from tokenspeed_kernels import native, selector
from tokenspeed_kernels.attention import AttentionRows

from tests.conftest import Record
from tests.llamas import save_folder
from tests.reference import transformers_model
from tests.tiny import demo_path
from tokenspeed.model.build import LanguageModel, declare_model
from tokenspeed.model.layers import ForwardStep, KvPages
from tokenspeed.model.placement import OneRank
from tokenspeed.text.tokenizer import load_tokenizer

# Documentation as it once was: the figures stay the same when the pages change.
TEXT = Path(__file__).parents[1] / "data" / "prose.txt"
WINDOW = 512
PAGE = 16
EXCESS_MAX = 0.005


def _model(path: Path, *, packed: bool) -> tuple[LanguageModel, list[KvPages]]:
    declared = declare_model(str(path), WINDOW, torch.float32, selector("cpu"), OneRank(), packed=packed)
    sizes = (WINDOW // PAGE + 1, PAGE, declared.kv_heads, declared.shape.head_dim)
    pages = [KvPages(torch.zeros(sizes), torch.zeros(sizes)) for _ in range(declared.shape.layers)]
    return declared.load(lambda phase, share: None), pages


def _loss(model: LanguageModel, pages: list[KvPages], ids: torch.Tensor) -> float:
    """Return the mean of -log p over windows of `ids`, each from its beginning."""
    total = 0.0
    with torch.inference_mode():
        for window in ids[: len(ids) // WINDOW * WINDOW].view(-1, WINDOW):
            positions = torch.arange(WINDOW)
            table = torch.arange(1, WINDOW // PAGE + 1).unsqueeze(0)
            rows = AttentionRows(torch.tensor([WINDOW]), torch.tensor([0]), table)
            logits = model.logits(model(ForwardStep(window, positions, positions + PAGE, rows), pages))
            total += float(torch.nn.functional.cross_entropy(logits[:-1], window[1:]))
    return total / (len(ids) // WINDOW)


def _compare(path: Path, ids: torch.Tensor, proof: Record) -> None:
    exact, kept = (math.exp(_loss(*_model(path, packed=packed), ids)) for packed in (False, True))
    ratio = round(kept / exact, 5)
    proof(tokens=len(ids), perplexity_float32=round(exact, 3), perplexity_int8=round(kept, 3), ratio=ratio)
    assert kept < (1 + EXCESS_MAX) * exact


@pytest.fixture(scope="module")
def ids() -> torch.Tensor:
    """The text as ids of the demo model."""
    native.set_threads(torch.get_num_threads())
    return torch.tensor(list(load_tokenizer(demo_path()).encode(TEXT.read_text())))


@pytest.mark.prove(shows="int8 keeps the perplexity within 0.5% of float32: blocks of a GGUF file", limit_s=600)
def test_of_the_blocks_of_a_gguf_file(ids: torch.Tensor, proof: Record) -> None:
    _compare(demo_path(), ids, proof)


@pytest.mark.prove(shows="int8 keeps the perplexity within 0.5% of float32: rounded floats", limit_s=600)
def test_of_rounded_floats(ids: torch.Tensor, tmp_path: Path, proof: Record) -> None:
    _compare(save_folder(transformers_model(demo_path()), tmp_path / "model"), ids, proof)
