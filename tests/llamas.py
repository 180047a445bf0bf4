"""Tiny random checkpoints of Llama and its kin with transformers as their judge, and executors to run them.

Written twice from the same weights: as a safetensors folder by transformers, and as GGUF in the row
order that llama.cpp keeps. No tokenizer: these models are about numbers.
"""

from __future__ import annotations

import select
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch

from tokenspeed.config import ExecutorConfig, ModelConfig
from tokenspeed.errors import EngineError
from tokenspeed.executor.executor import load_executor
from tokenspeed.executor.face import Executor, StepOutcome
from tokenspeed.messages.base import pack_ids, unpack_ids
from tokenspeed.messages.executor import ROW_DECODE, ROW_SAMPLE, SlotOpening, StepPlan

STEP_LIMIT_S = 60.0

SIZES: dict[str, Any] = {
    "vocab_size": 259,
    "hidden_size": 48,
    "intermediate_size": 112,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 12,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
    "initializer_range": 0.3,
}
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}


YARN_ROPE = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 64,
}


def random_llama(seed: int = 0, **changes: Any) -> Any:
    """Return a transformers Llama of `SIZES` with `changes`."""
    return random_model("Llama", seed, **changes)


def random_model(family: str, seed: int = 0, **changes: Any) -> Any:
    """Return a transformers model of `family` ("Llama", "Mistral", "Qwen2", "Qwen3") of `SIZES` with `changes`."""
    import transformers

    torch.manual_seed(seed)
    config = getattr(transformers, f"{family}Config")(**{**SIZES, **changes})
    model = getattr(transformers, f"{family}ForCausalLM")(config).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "norm" in name:
                weight.uniform_(0.5, 1.5)
            elif name.endswith(".bias"):
                weight.normal_(0, 0.5)
    return model


def save_folder(model: Any, path: Path) -> Path:
    """Write `model` as a safetensors folder."""
    model.save_pretrained(path, safe_serialization=True)
    return path


def save_gguf(model: Any, path: Path, kind: str = "F32") -> Path:
    """Write `model` as GGUF: matrices as `kind`, queries and keys of Llama and Mistral in llama.cpp's row order."""
    config = model.config
    architecture = {"mistral": "llama"}.get(config.model_type, config.model_type)
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_rope_dimension_count(config.head_dim)
    if config.rope_parameters["rope_type"] in ("linear", "yarn"):
        writer.add_rope_scaling_type(gguf.RopeScalingType(config.rope_parameters["rope_type"]))
        writer.add_rope_scaling_factor(config.rope_parameters["factor"])
    if config.rope_parameters["rope_type"] == "yarn":
        writer.add_rope_scaling_orig_ctx_len(config.rope_parameters["original_max_position_embeddings"])
    if config.rope_parameters["rope_type"] == "llama3":
        plain = 1.0 / config.rope_parameters["rope_theta"] ** (torch.arange(0, config.head_dim, 2) / config.head_dim)
        writer.add_tensor("rope_freqs.weight", (plain / model.model.rotary_emb.inv_freq).float().numpy())
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH[architecture.upper()], config.num_hidden_layers)
    for name, weight in model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        turned = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
        heads = turned.get(name.split(".")[-2]) if architecture == "llama" else None
        rows = weight if heads is None else _interleaved(weight, heads)
        _add(writer, names.get_name(name, try_suffixes=(".weight", ".bias")), rows.numpy(), kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _interleaved(weight: torch.Tensor, heads: int) -> torch.Tensor:
    return weight.view(heads, 2, -1, *weight.shape[1:]).transpose(1, 2).reshape(weight.shape)


def gguf_type(shape: Sequence[int], kind: str) -> gguf.GGMLQuantizationType:
    """Return how `save_gguf` stores a tensor: vectors whole, and rows that no block divides in F16."""
    if len(shape) == 1:
        return gguf.GGMLQuantizationType.F32
    number = gguf.GGMLQuantizationType[kind]
    return gguf.GGMLQuantizationType.F16 if shape[-1] % gguf.GGML_QUANT_SIZES[number][0] else number


def _add(writer: gguf.GGUFWriter, name: str, array: np.typing.NDArray[np.float32], kind: str) -> None:
    number = gguf_type(array.shape, kind)
    writer.add_tensor(name, gguf.quants.quantize(np.ascontiguousarray(array), number), raw_dtype=number)


def executor_config(path: Path, **changes: Any) -> ExecutorConfig:
    """Return the configuration of a small executor of the checkpoint at `path`."""
    length = changes.pop("max_model_len", 256)
    own = {name: changes.pop(name) for name in ("dtype", "load_format") if name in changes}
    model = ModelConfig(path=str(path), served_name="tiny", max_model_len=length, **own)
    settings: dict[str, Any] = {"max_num_seqs": 8, "kv_cache_bytes": 8 << 20, "threads": 1, **changes}
    return ExecutorConfig(model=model, **settings)


def load(path: Path, **changes: Any) -> Executor:
    """Load an executor; `changes` go to `executor_config`."""
    return load_executor(executor_config(path, **changes), lambda phase, share: None)


def outcomes(executor: Executor, count: int, limit_s: float = STEP_LIMIT_S) -> list[StepOutcome]:
    """Wait for `count` outcomes, as an actor does, and return them."""
    seen: list[StepOutcome] = []
    while len(seen) < count:
        assert select.select([executor], [], [], limit_s)[0], f"{len(seen)} of {count} outcomes in {limit_s} s"
        seen += executor.collect()
    assert len(seen) == count
    return seen


class Driver:
    """Plans for any executor, written by hand: pages are handed out in order and never come back.

    `plans` are those that were run, in order. A step that fails raises `EngineError`.
    """

    def __init__(self, executor: Executor) -> None:
        self.executor = executor
        self.plans: list[StepPlan] = []
        self._page = 0
        self._openings: list[SlotOpening] = []
        self._pages: list[int] = []
        self._covered: dict[int, list[int]] = {}

    def open(self, slot: int, pages: Sequence[int] = (), **settings: Any) -> None:
        """Open `slot` with the next plan; `pages` are its first ones, as from a cached prefix."""
        values: dict[str, Any] = {"seed": 0, "temperature": 0.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0}
        values |= {"suppress_until": 0, "suppress": b"", **settings}
        self._openings.append(SlotOpening(slot=slot, request=slot, **values))
        self._covered[slot] = []
        for page in pages:
            self._cover(slot, page)

    def pages(self, slot: int) -> list[int]:
        """Return the pages that `slot` has been given, in order."""
        return list(self._covered[slot])

    def run(self, *rows: tuple[int, Sequence[int] | None, int, bool]) -> list[int]:
        """Run rows of (slot, ids or None for decode, context, sample); return the sampled ids."""
        packed: list[int] = []
        ids: list[int] = []
        for slot, tokens, context, sample in rows:
            count = 1 if tokens is None else len(tokens)
            while len(self._covered[slot]) * self.executor.page_tokens < context + count:
                self._page += 1
                self._cover(slot, self._page)
            flags = (ROW_SAMPLE if sample else 0) | (ROW_DECODE if tokens is None else 0)
            packed += [slot, count, context, flags]
            ids += tokens or []
        plan = StepPlan(len(self.plans) + 1, self._openings, pack_ids(self._pages), pack_ids(packed), pack_ids(ids))
        self.plans.append(plan)
        self._openings, self._pages = [], []
        self.executor.submit(plan)
        [outcome] = outcomes(self.executor, 1)
        if outcome.failure:
            raise EngineError(outcome.failure)
        assert outcome.step == plan.step
        assert unpack_ids(outcome.counts) == [1] * sum(sample for _, _, _, sample in rows)
        return unpack_ids(outcome.ids)

    def generate(self, slot: int, prompt: Sequence[int], count: int, chunk: int = 64, **settings: Any) -> list[int]:
        """Open `slot`, run `prompt` in chunks and return `count` ids."""
        self.open(slot, **settings)
        ids: list[int] = []
        for first in range(0, len(prompt), chunk):
            ids = self.run((slot, prompt[first : first + chunk], first, first + chunk >= len(prompt)))
        for context in range(len(prompt), len(prompt) + count - 1):
            ids += self.run((slot, None, context, True))
        return ids

    def _cover(self, slot: int, page: int) -> None:
        self._pages += [slot, 0, len(self._covered[slot]), page]
        self._covered[slot].append(page)
