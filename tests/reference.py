"""What transformers says: greedy ids of a checkpoint, and the comparison that counts as equal.

Equal tokens: greedy ids are equal; where two runs part, the reference's two best logits at that
position lie within 1e-3 (float32) and the candidate took one of the two. After such a fork the
reference follows the candidate's ids. More than one fork per 1,000 tokens fails.

What was computed is kept under .cache/reference, by the hash of the checkpoint and the prompt, and
transformers is only imported when something is not there yet.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from tokenspeed.formats.location import weights_path
from tokenspeed.model.checkpoint import open_checkpoint
from tokenspeed.model.config import read_shape

CACHE = Path(__file__).resolve().parents[1] / ".cache" / "reference"
TOLERANCE = 1e-3
FORKS_PER_TOKENS = 1 / 1000


@dataclass(frozen=True)
class Greedy:
    """Greedy continuation: `gaps[i]` is how far the best logit for `ids[i]` leads the second."""

    ids: list[int]
    gaps: list[float]


@dataclass(frozen=True)
class Fork:
    """Where a candidate took another token than the reference would."""

    prompt: int
    position: int
    reference: int
    candidate: int
    gap: float
    tolerated: bool

    def __str__(self) -> str:
        """Return one line for the test's output."""
        verdict = "tolerated" if self.tolerated else "NOT tolerated"
        return (
            f"prompt {self.prompt}, output {self.position}: reference {self.reference}, "
            f"candidate {self.candidate}, two best logits {self.gap:.2e} apart, {verdict}"
        )


class Reference:
    """The checkpoint at `path`, computed by transformers in float32."""

    def __init__(self, path: str | Path) -> None:
        self.path = weights_path(path)

    def greedy(self, prompt: Sequence[int], count: int) -> Greedy:
        """Return the `count` greedy ids behind `prompt`; the end of a sequence is not looked for."""
        place = CACHE / self._hash / f"{_digest(prompt)}.json"
        known = Greedy(**json.loads(place.read_text())) if place.is_file() else Greedy([], [])
        if len(known.ids) < count:
            known = self._greedy(list(prompt), count)
            place.parent.mkdir(parents=True, exist_ok=True)
            _write(place, json.dumps({"ids": known.ids, "gaps": known.gaps}))
        return Greedy(known.ids[:count], known.gaps[:count])

    def logits(self, ids: Sequence[int]) -> torch.Tensor:
        """Return float32 [len(ids), vocab]: row i says what follows ids[: i + 1]."""
        with torch.inference_mode():
            logits: torch.Tensor = self.model(torch.tensor([list(ids)])).logits[0]
        return logits

    def forks(self, number: int, prompt: Sequence[int], candidate: Sequence[int]) -> list[Fork]:
        """Return where `candidate` parts from the reference, which follows it after each fork."""
        if not candidate or self.greedy(prompt, len(candidate)).ids == list(candidate):
            return []
        rows = self.logits([*prompt, *candidate[:-1]])[len(prompt) - 1 :]
        best = rows.topk(2, dim=1)
        return [
            Fork(number, position, ids[0], token, gap, tolerated=token in ids and gap <= TOLERANCE)
            for position, (token, ids, gap) in enumerate(
                zip(candidate, best.indices.tolist(), (best.values[:, 0] - best.values[:, 1]).tolist(), strict=True)
            )
            if token != ids[0]
        ]

    @cached_property
    def model(self) -> Any:
        """The transformers model with the checkpoint's weights, dequantised."""
        return transformers_model(self.path)

    @cached_property
    def _hash(self) -> str:
        digest = hashlib.sha256()
        files = sorted(self.path.glob("*.safetensors")) if self.path.is_dir() else [self.path]
        for file in files:
            with file.open("rb") as data:
                while block := data.read(1 << 20):
                    digest.update(block)
        return digest.hexdigest()[:16]

    def _greedy(self, prompt: list[int], count: int) -> Greedy:
        with torch.inference_mode():
            run = self.model.generate(
                torch.tensor([prompt]),
                attention_mask=torch.ones(1, len(prompt), dtype=torch.int64),
                do_sample=False,
                max_new_tokens=count,
                eos_token_id=None,
                pad_token_id=0,
                output_logits=True,
                return_dict_in_generate=True,
            )
        best = torch.cat(run.logits).topk(2, dim=1).values
        return Greedy(run.sequences[0, len(prompt) :].tolist(), (best[:, 0] - best[:, 1]).tolist())


def assert_equal_tokens(
    reference: Reference, runs: Iterable[tuple[Sequence[int], Sequence[int]]], tokens_besides: int = 0
) -> None:
    """Fail unless each candidate of `runs` (prompt ids, output ids) equals the reference; see above.

    `tokens_besides` are tokens that the same test compared elsewhere, added to the count.
    """
    runs = list(runs)
    forks = [fork for number, (prompt, ids) in enumerate(runs) for fork in reference.forks(number, prompt, ids)]
    tokens = sum(len(ids) for _, ids in runs) + tokens_besides
    report = "\n".join(map(str, forks))
    if forks:
        print(report)
    assert all(fork.tolerated for fork in forks), f"tokens differ:\n{report}"
    assert len(forks) <= tokens * FORKS_PER_TOKENS, f"{len(forks)} forks in {tokens} tokens:\n{report}"


def transformers_model(path: Path) -> Any:
    """Return a float32 LlamaForCausalLM with the weights of the checkpoint at `path`."""
    from transformers import LlamaConfig, LlamaForCausalLM

    if path.is_dir():
        return LlamaForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
    shape = read_shape(path)
    assert shape.rope.kind == "default", "only plain rope is translated for GGUF files"
    config = LlamaConfig(
        vocab_size=shape.vocab,
        hidden_size=shape.hidden,
        intermediate_size=shape.intermediate,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        max_position_embeddings=shape.max_position,
        rms_norm_eps=shape.norm_eps,
        rope_parameters={"rope_type": "default", "rope_theta": shape.rope.theta},
        tie_word_embeddings=shape.tied,
        dtype=torch.float32,
    )
    tensors = open_checkpoint(path, shape.head_dim)
    weights = {name: tensors.read(name, 0, sizes[0]).clone() for name, sizes in tensors.shapes.items()}
    with torch.device("meta"):
        model = LlamaForCausalLM(config)
    if shape.tied:
        weights["lm_head.weight"] = weights["model.embed_tokens.weight"]
    model.load_state_dict(weights, assign=True, strict=True)
    model.tie_weights()
    # Buffers are in no checkpoint: the rotary table has to be computed on a real device.
    model.model.rotary_emb = type(model.model.rotary_emb)(config)
    return model.eval()


def _digest(prompt: Sequence[int]) -> str:
    return hashlib.sha256(json.dumps(list(prompt)).encode()).hexdigest()[:24]


def _write(path: Path, text: str) -> None:
    # Two test processes may compute the same: the last complete file wins.
    draft = path.with_suffix(f".{os.getpid()}")
    draft.write_text(text)
    draft.replace(path)
