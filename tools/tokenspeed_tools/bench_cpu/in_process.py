"""transformers in this process: `generate` in float32 over the weights of the same file.

A batch begins and ends together, so that its time to the first token is that of all its prompts.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import torch

from tokenspeed_tools.bench_cpu.traffic import NEW_TOKENS, Answer, summary

PROMPT_TOKENS = 58
RUNS = 2


class Transformers:
    """The model at `path`, a .gguf file or a folder."""

    def __init__(self, path: Path) -> None:
        """Read it; takes minutes for a .gguf file of some size."""
        from transformers import AutoModelForCausalLM

        where = {"gguf_file": path.name} if path.is_file() else {}
        folder = path.parent if path.is_file() else path
        self._model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **where).eval()

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
