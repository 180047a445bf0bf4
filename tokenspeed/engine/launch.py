"""From what a caller asks for to the actors that run it: defaults, limits and the map of rings.

Owns no state. It reads the checkpoint's description, never its weights, and knows each actor by name
only. Every refusal here comes before a process is started.
"""

from __future__ import annotations

from pathlib import Path

from tokenspeed.actors.charge import ActorSpec
from tokenspeed.actors.edges import EdgeSpec
from tokenspeed.config import (
    PAGE_TOKENS_CPU,
    DetokenizerConfig,
    EngineConfig,
    ExecutorConfig,
    ModelConfig,
    SchedulerConfig,
    TokenizerConfig,
)
from tokenspeed.demo import ABSENT, find_demo
from tokenspeed.errors import StartError
from tokenspeed.formats.checkpoint import Checkpoint, describe

HOME = "engine"
KV_CACHE_BYTES_DEFAULT = 4 << 30
FLOAT32_BYTES = 4

# Writer, readers, capacity. Rings are sized by what can be in flight: a full one holds its writer
# back, so capacity is a matter of smoothness; only the edges marked "bounded" must never fill.
EDGES = (
    EdgeSpec(HOME, ("tokenizer",), 8 << 20),  # prompts of open requests
    EdgeSpec(HOME, ("scheduler",), 1 << 20),  # cancels
    EdgeSpec("tokenizer", ("scheduler",), 8 << 20),  # ids of open requests
    EdgeSpec("tokenizer", (HOME,), 1 << 20),  # refusals
    EdgeSpec("scheduler", ("executor",), 4 << 20),  # bounded: overlap + 1 plans
    EdgeSpec("executor", ("scheduler",), 1 << 20),  # bounded: overlap + 1 results
    EdgeSpec("scheduler", ("detokenizer",), 8 << 20),  # new ids
    EdgeSpec("scheduler", (HOME,), 1 << 20),  # acceptances, refusals
    EdgeSpec("detokenizer", ("scheduler",), 1 << 20),  # bounded: one verdict a request
    EdgeSpec("detokenizer", (HOME,), 8 << 20),  # text
)


def resolve(config: EngineConfig) -> tuple[Checkpoint, ModelConfig]:
    """Return the checkpoint's description and the model settings. Raises `StartError`."""
    path = Path(config.model) if config.model is not None else find_demo()
    if path is None:
        raise StartError(ABSENT)
    checkpoint = describe(path)
    if config.dtype != "float32":
        raise StartError(f"dtype is {config.dtype!r}; the CPU executor computes in 'float32' only.")
    longest = checkpoint.max_position
    length = config.max_model_len if config.max_model_len is not None else longest
    if not 2 <= length <= longest:
        raise StartError(f"max_model_len is {length}; {checkpoint.name} allows 2 to {longest}.")
    name = config.served_model_name or checkpoint.name
    return checkpoint, ModelConfig(path=str(path), served_name=name, dtype=config.dtype, max_model_len=length)


def actor_specs(config: EngineConfig, checkpoint: Checkpoint, model: ModelConfig) -> list[ActorSpec]:
    """Return the four actors with their settings."""
    scheduler = SchedulerConfig(
        max_model_len=model.max_model_len,
        max_num_seqs=config.max_num_seqs,
        chunked_prefill_size=config.chunked_prefill_size,
        mixed_prefill_size=config.mixed_prefill_size,
        overlap=config.overlap,
        enable_prefix_caching=config.enable_prefix_caching,
        admission_growth_tokens=config.admission_growth_tokens,
    )
    executor = ExecutorConfig(
        model=model,
        max_num_seqs=config.max_num_seqs,
        chunked_prefill_size=config.chunked_prefill_size,
        kv_cache_bytes=kv_cache_bytes(config, checkpoint, model),
    )
    return [
        ActorSpec("tokenizer", "tokenspeed.actors.tokenizer:TokenizerActor", TokenizerConfig(model=model)),
        ActorSpec("scheduler", "tokenspeed.actors.scheduler:SchedulerActor", scheduler),
        ActorSpec("executor", "tokenspeed.actors.executor:ExecutorActor", executor),
        ActorSpec("detokenizer", "tokenspeed.actors.detokenizer:DetokenizerActor", DetokenizerConfig(model=model)),
    ]


def kv_bytes_per_token(checkpoint: Checkpoint) -> int:
    """Return the bytes of keys and values of one token over all layers, in float32."""
    return checkpoint.kv_elements_per_token * FLOAT32_BYTES


def kv_cache_bytes(config: EngineConfig, checkpoint: Checkpoint, model: ModelConfig) -> int:
    """Return the memory for KV pages: as asked, else what full slots need, at most 4 GiB.

    One request of the full context must fit. Raises `StartError` with the context that would.
    """
    page_bytes = kv_bytes_per_token(checkpoint) * PAGE_TOKENS_CPU
    context_bytes = (1 + -(-model.max_model_len // PAGE_TOKENS_CPU)) * page_bytes  # page 0 is padding
    if config.kv_cache_bytes is None:
        return max(context_bytes, min(context_bytes * config.max_num_seqs, KV_CACHE_BYTES_DEFAULT))
    if config.kv_cache_bytes < context_bytes:
        tokens = max(0, config.kv_cache_bytes // page_bytes - 1) * PAGE_TOKENS_CPU
        raise StartError(
            f"A KV cache of {config.kv_cache_bytes} bytes holds {tokens} tokens, less than one request of "
            f"max_model_len {model.max_model_len}: give it at least {context_bytes} bytes, or set max_model_len "
            f"to at most {tokens}."
        )
    return config.kv_cache_bytes
