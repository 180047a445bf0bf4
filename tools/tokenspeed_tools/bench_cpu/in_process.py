"""transformers in this process: `generate` in float32 over the weights of the same file.

A batch begins and ends together, so that its time to the first token is that of all its prompts.
Weights come through this package's own reader, which needs no further library for GGUF.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import torch

from tokenspeed.model.checkpoint import open_checkpoint
from tokenspeed.model.config import read_shape
from tokenspeed_tools.bench_cpu.traffic import NEW_TOKENS, Answer, summary

PROMPT_TOKENS = 58
RUNS = 2


class Transformers:
    """The Llama at `path`, a .gguf file or a folder."""

    def __init__(self, path: Path) -> None:
        """Read it. Raises `RuntimeError` for what is not read here."""
        from transformers import LlamaForCausalLM

        if path.is_dir():
            self._model: Any = LlamaForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
        else:
            self._model = _from_gguf(path)

    def crowd(self, concurrency: int) -> dict[str, float]:
        """Return the figures of batches of `concurrency`, the first of them left out."""
        answers = []
        took_s = 0.0
        for run in range(1 + RUNS):
            batch, batch_s = self._batch(concurrency, run)
            if run:
                answers += batch
                took_s += batch_s
        return summary(answers, took_s)

    def _batch(self, concurrency: int, seed: int) -> tuple[list[Answer], float]:
        from transformers import StoppingCriteriaList

        ids = torch.randint(0, 40_000, (concurrency, PROMPT_TOKENS), generator=torch.Generator().manual_seed(seed))
        times_s: list[float] = []

        def note(ids: torch.Tensor, scores: object, **rest: object) -> torch.Tensor:
            times_s.append(time.perf_counter())
            return torch.zeros(len(ids), dtype=torch.bool)

        begin_s = time.perf_counter()
        with torch.inference_mode():
            self._model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                do_sample=False,
                max_new_tokens=NEW_TOKENS,
                eos_token_id=None,
                pad_token_id=0,
                stopping_criteria=StoppingCriteriaList([note]),
            )
        answers = [Answer(begin_s, times_s, NEW_TOKENS, PROMPT_TOKENS, "") for _ in range(concurrency)]
        return answers, time.perf_counter() - begin_s


def _from_gguf(path: Path) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    shape = read_shape(path)
    if shape.architecture != "llama" or shape.rope.kind != "default" or not shape.tied:
        raise RuntimeError(f"{path.name}: for transformers only a Llama with plain rope and a tied head is read.")
    config = LlamaConfig(
        vocab_size=shape.vocab,
        hidden_size=shape.hidden,
        intermediate_size=shape.intermediate,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        rms_norm_eps=shape.norm_eps,
        rope_parameters={"rope_type": "default", "rope_theta": shape.rope.theta},
        tie_word_embeddings=True,
    )
    tensors = open_checkpoint(path, shape.head_dim)
    weights = {name: tensors.read(name, 0, sizes[0]) for name, sizes in tensors.shapes.items()}
    weights["lm_head.weight"] = weights["model.embed_tokens.weight"]
    model: Any = LlamaForCausalLM(config)
    model.load_state_dict(weights, strict=True)
    return model.eval()
