"""How long a context is served.

Owns the answer to `--max-model-len`: the model's own length, a number, or "auto", the longest that
memory has room for. It reads no weights: for "auto" it estimates what the executor will measure, on
the safe side.

Invariant: a length returned is at least 2 tokens and at most what the model can attend to.
"""

from __future__ import annotations

import logging

from tokenspeed.config import AUTO, DTYPE_BYTES, WEIGHT_BYTES, DeviceSettings, EngineConfig
from tokenspeed.engine.memory import bytes_allowed
from tokenspeed.errors import StartError
from tokenspeed.formats.checkpoint import Checkpoint

TOKENS_MIN = 2  # one to read and one to write

logger = logging.getLogger(__name__)


def context_tokens(config: EngineConfig, checkpoint: Checkpoint, device: DeviceSettings) -> int:
    """Return the tokens of the longest request, reply included. Raises `StartError`."""
    asked, longest = config.max_model_len, checkpoint.max_position
    if asked in (None, AUTO) and checkpoint.window == checkpoint.context_default:
        logger.warning(
            "%s looks back %d tokens (sliding_window); longer contexts are not computed here, so that much is served.",
            checkpoint.name,
            checkpoint.window,
        )
    if asked is None:
        return checkpoint.context_default
    if asked == AUTO:
        return _fitting(config, checkpoint, device)
    if not isinstance(asked, int):
        raise StartError(f"max_model_len is {asked!r}; a number of tokens or {AUTO!r} is allowed.")
    if not TOKENS_MIN <= asked <= longest:
        raise StartError(
            f"max_model_len is {asked}; {checkpoint.name} allows {TOKENS_MIN} to {longest}{_why(checkpoint)}"
        )
    return asked


def _why(checkpoint: Checkpoint) -> str:
    if checkpoint.window == checkpoint.max_position:
        return ", its sliding_window: attention over a window is not computed here."
    if checkpoint.kind == "gguf":
        return "."
    return (
        ". If it was made for more, say how its rope stretches: hf_overrides "
        '{"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}}, '
        "with the numbers of its model card."
    )


def _fitting(config: EngineConfig, checkpoint: Checkpoint, device: DeviceSettings) -> int:
    page_bytes = kv_bytes_per_token(checkpoint, device.dtype) * device.page_tokens
    left = bytes_allowed(device.name, config.gpu_memory_utilization) - needed_bytes(checkpoint, device)
    pages = min(left, config.kv_cache_bytes or left) // page_bytes
    tokens = min((pages - 1) * device.page_tokens, checkpoint.context_default)  # page 0 is padding
    if tokens < TOKENS_MIN:
        raise StartError(
            f"No memory is left for a context of {checkpoint.name}: {left >> 20:,} MiB beside its weights and the "
            "largest step, and a page of keys and values takes "
            f"{page_bytes >> 10:,} KiB. Serve a smaller model, free memory, or lower chunked_prefill_size.",
            code="out_of_memory",
        )
    return tokens


def kv_bytes_per_token(checkpoint: Checkpoint, dtype: str) -> int:
    """Return the bytes of keys and values of one token over all layers, computed in `dtype`."""
    return checkpoint.kv_elements_per_token * DTYPE_BYTES[dtype]


def needed_bytes(checkpoint: Checkpoint, device: DeviceSettings) -> int:
    """Return what weights and the largest step take, an upper estimate."""
    item = DTYPE_BYTES[device.dtype]
    queries_keys_values = (checkpoint.heads + 2 * checkpoint.kv_heads) * checkpoint.head_dim
    token = 4 * checkpoint.hidden + 2 * queries_keys_values + 3 * checkpoint.intermediate
    logits = 4 * device.max_num_seqs * checkpoint.vocab_tokens * 4  # float32, and as much again to sort and to draw
    libraries = {"cpu": 512 << 20, "cuda": 1 << 30}[device.name]  # the interpreter's or the driver's
    parameters = checkpoint.parameters or _parameters(checkpoint)
    weights = parameters * WEIGHT_BYTES[device.dtype]
    return weights + device.chunked_prefill_size * token * item + logits + libraries


def _parameters(checkpoint: Checkpoint) -> int:
    """Return how many numbers dummy weights have, but for norms and biases."""
    queries_keys_values_output = 2 * (checkpoint.heads + checkpoint.kv_heads) * checkpoint.head_dim
    layer = checkpoint.hidden * (queries_keys_values_output + 3 * checkpoint.intermediate)
    return checkpoint.layers * layer + 2 * checkpoint.vocab_tokens * checkpoint.hidden
