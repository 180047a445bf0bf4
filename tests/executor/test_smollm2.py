"""The demo model: greedy ids equal transformers, which runs the same dequantised weights."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.conftest import Record
from tests.llamas import Driver, load
from tests.reference import Reference, assert_equal_tokens
from tests.tiny import demo_path
from tokenspeed.messages.base import pack_ids
from tokenspeed.messages.logprobs import Entry, entries
from tokenspeed.model.checkpoint import open_checkpoint
from tokenspeed.model.config import read_shape

# "The capital of France is", a chat turn, and ids without sense that span several pages.
PROMPTS = [
    [504, 3575, 282, 4649, 314],
    [1, 4093, 198, 504, 3575, 282, 4649, 314, 2, 198, 1, 520, 9531, 198],
    [(17 * index * index + 91 * index) % 49152 for index in range(150)],
]
TOKENS = 8


def test_greedy_ids_equal_transformers() -> None:
    """Prompts of several lengths, alone and then in steps that they share."""
    executor = load(demo_path(), max_model_len=512, kv_cache_bytes=128 << 20)
    driver = Driver(executor)
    alone = [driver.generate(1, prompt, TOKENS) for prompt in PROMPTS]
    for slot in (2, 3, 4):
        driver.open(slot)
    slots = list(enumerate(PROMPTS, 2))
    shared = [driver.run(*((slot, prompt, 0, True) for slot, prompt in slots))]
    shared += [
        driver.run(*((slot, None, len(prompt) + done, True) for slot, prompt in slots)) for done in range(TOKENS - 1)
    ]
    together = [list(ids) for ids in zip(*shared, strict=True)]
    executor.close()
    assert_equal_tokens(
        Reference(demo_path()), [*zip(PROMPTS, alone, strict=True), *zip(PROMPTS, together, strict=True)]
    )


@pytest.mark.prove(shows="scores of the demo model's prompts are transformers' log-probabilities", limit_s=300)
def test_scores_equal_transformers(proof: Record) -> None:
    """A prompt of several chunks and pages, token by token."""
    executor = load(demo_path(), max_model_len=512, kv_cache_bytes=128 << 20)
    driver, prompt = Driver(executor), PROMPTS[2]
    driver.open(1, prompt_tokens=len(prompt), history=pack_ids(prompt), prompt_logprobs=0)
    scored: list[Entry] = []
    for first in range(0, len(prompt), 64):
        driver.run((1, prompt[first : first + 64], first, False))
        scored += entries(driver.outcomes[-1].scores, 0)
    executor.close()
    assert [entry.id for entry in scored] == prompt[1:]
    wanted = Reference(demo_path()).logits(prompt).double().log_softmax(dim=1)[:-1]
    found = torch.tensor([entry.logprob for entry in scored], dtype=torch.float64)
    difference = (found - wanted.gather(1, torch.tensor(prompt[1:])[:, None])[:, 0]).abs().max().item()
    proof(tokens=len(scored), logprob_difference_max=difference)
    assert difference < 1e-3


@pytest.mark.prove(shows="the demo model's weights are what transformers reads from the same file", limit_s=300)
def test_weights_equal_transformers_own_reading() -> None:
    """Every tensor of the GGUF file, dequantised and put in order by transformers' own code."""
    from transformers import LlamaConfig, LlamaForCausalLM
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    told: dict[str, Any] = load_gguf_checkpoint(str(demo_path()))["config"]
    names = ("num_attention_heads", "num_key_value_heads", "num_hidden_layers", "hidden_size", "vocab_size")
    with torch.device("meta"):
        empty = LlamaForCausalLM(LlamaConfig(**{name: told[name] for name in names}))
    theirs = load_gguf_checkpoint(str(demo_path()), return_tensors=True, model_to_load=empty)["tensors"]
    ours = open_checkpoint(demo_path(), read_shape(demo_path()).head_dim)
    assert theirs.keys() == ours.shapes.keys()
    for name, tensor in theirs.items():
        assert torch.equal(ours.read(name, 0, len(tensor)), tensor), name
