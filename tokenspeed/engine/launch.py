"""From what a caller asks for to the actors that run it: defaults, limits and the map of rings.

Owns no state. It reads the checkpoint's description, never its weights, and knows each actor by name
only. Every refusal here comes before a process is started.
"""

from __future__ import annotations

from collections.abc import Callable

from tokenspeed.actors.charge import ActorSpec
from tokenspeed.actors.edges import EdgeSpec
from tokenspeed.config import (
    GPU_MEMORY_UTILIZATION_MAX,
    GPU_MEMORY_UTILIZATION_MIN,
    LOAD_FORMATS,
    ONE_VALUE,
    DetokenizerConfig,
    DeviceSettings,
    EngineConfig,
    ExecutorConfig,
    ModelConfig,
    SchedulerConfig,
    TokenizerConfig,
)
from tokenspeed.engine.context import context_tokens, kv_bytes_per_token
from tokenspeed.engine.device import device_settings
from tokenspeed.engine.locate import locate
from tokenspeed.errors import StartError
from tokenspeed.formats.checkpoint import Checkpoint, describe
from tokenspeed.formats.generation_json import read_generation_defaults

HOME = "engine"
KV_CACHE_BYTES_DEFAULT = 4 << 30
FROM_WHAT_IS_LEFT = 0  # the executor knows best what its device has left

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


def resolve(
    config: EngineConfig, on_event: Callable[[str], None] = lambda text: None
) -> tuple[Checkpoint, ModelConfig, DeviceSettings]:
    """Return the checkpoint's description and the settings of model and device. Raises `StartError`.

    A model that is on the Hugging Face Hub and not here yet is downloaded; `on_event` hears of it.
    """
    _check_one_value(config)
    if config.load_format not in LOAD_FORMATS:
        raise StartError(f"load_format is {config.load_format!r}; {', '.join(LOAD_FORMATS)} are allowed.")
    dummy = config.load_format == "dummy"
    device = device_settings(config)
    path, hub_name = locate(config, on_event)
    checkpoint = describe(path, dummy=dummy, overrides=config.hf_overrides)
    if config.load_format in ("safetensors", "gguf") and checkpoint.kind != config.load_format:
        raise StartError(f"{path} is {checkpoint.kind}, and load_format is {config.load_format}: choose auto.")
    model = ModelConfig(
        path=str(path),
        served_name=config.served_model_name or hub_name or checkpoint.name,
        dtype=device.dtype,
        max_model_len=context_tokens(config, checkpoint, device),
        load_format=config.load_format,
        hf_overrides=config.hf_overrides,
        defaults=read_generation_defaults(path, config.generation_config, dummy=dummy),
    )
    return checkpoint, model, device


def actor_specs(
    config: EngineConfig, checkpoint: Checkpoint, model: ModelConfig, device: DeviceSettings
) -> list[ActorSpec]:
    """Return the four actors with their settings."""
    scheduler = SchedulerConfig(
        max_model_len=model.max_model_len,
        max_num_seqs=device.max_num_seqs,
        chunked_prefill_size=device.chunked_prefill_size,
        mixed_prefill_size=device.mixed_prefill_size,
        overlap=config.overlap,
        enable_prefix_caching=config.enable_prefix_caching,
        admission_growth_tokens=config.admission_growth_tokens,
    )
    executor = ExecutorConfig(
        model=model,
        device=device.name,
        max_num_seqs=device.max_num_seqs,
        chunked_prefill_size=device.chunked_prefill_size,
        page_tokens=device.page_tokens,
        kv_cache_bytes=kv_cache_bytes(config, checkpoint, model, device),
        gpu_memory_utilization=_gpu_memory_utilization(config),
    )
    return [
        ActorSpec("tokenizer", "tokenspeed.actors.tokenizer:TokenizerActor", TokenizerConfig(model=model)),
        ActorSpec("scheduler", "tokenspeed.actors.scheduler:SchedulerActor", scheduler),
        ActorSpec("executor", "tokenspeed.actors.executor:ExecutorActor", executor),
        ActorSpec("detokenizer", "tokenspeed.actors.detokenizer:DetokenizerActor", DetokenizerConfig(model=model)),
    ]


def kv_cache_bytes(config: EngineConfig, checkpoint: Checkpoint, model: ModelConfig, device: DeviceSettings) -> int:
    """Return the memory for KV pages: as asked, else what full slots need, at most 4 GiB.

    On a GPU, when nothing is asked, the executor works it out once it knows what is left. One
    request of the full context must fit. Raises `StartError` with the context that would.
    """
    page_bytes = kv_bytes_per_token(checkpoint, device.dtype) * device.page_tokens
    context_bytes = (1 + -(-model.max_model_len // device.page_tokens)) * page_bytes  # page 0 is padding
    if config.kv_cache_bytes is None:
        if device.name == "cuda":
            return FROM_WHAT_IS_LEFT
        return max(context_bytes, min(context_bytes * device.max_num_seqs, KV_CACHE_BYTES_DEFAULT))
    if config.kv_cache_bytes < context_bytes:
        tokens = max(0, config.kv_cache_bytes // page_bytes - 1) * device.page_tokens
        raise StartError(
            f"A KV cache of {config.kv_cache_bytes} bytes holds {tokens} tokens, less than one request of "
            f"max_model_len {model.max_model_len}: give it at least {context_bytes} bytes, or set max_model_len "
            f"to at most {tokens}."
        )
    return config.kv_cache_bytes


def _gpu_memory_utilization(config: EngineConfig) -> float:
    low, high = GPU_MEMORY_UTILIZATION_MIN, GPU_MEMORY_UTILIZATION_MAX
    if not low <= config.gpu_memory_utilization <= high:
        raise StartError(f"gpu_memory_utilization is {config.gpu_memory_utilization}; {low} to {high} are allowed.")
    return config.gpu_memory_utilization


def _check_one_value(config: EngineConfig) -> None:
    default = EngineConfig()
    for name, reason in ONE_VALUE.items():
        if (value := getattr(config, name)) != getattr(default, name):
            raise StartError(f"{name} {value!r} is not supported: {reason}.")
