"""A tiny random Llama with the demo model's tokenizer: a step takes milliseconds, not tenths of a second.

Used wherever a test is about requests, pages and processes and not about the words of a reply.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

from tokenspeed.demo import find_demo
from tokenspeed.formats.gguf import GgufFile, read_gguf

LAYERS = 2
HEADS = 4
KV_HEADS = 2
HIDDEN = 64
HEAD_DIM = HIDDEN // HEADS
INNER = 128
CONTEXT = 2048


def demo_path() -> Path:
    """Return the demo model's file; a test that needs it fails without."""
    path = find_demo()
    assert path is not None, "the demo model is not installed: make test installs it"
    return path


def write_tiny_model(path: Path, *, seed: int = 7, context: int = CONTEXT, damaged: int | None = None) -> Path:
    """Write a random float32 GGUF of about 12 MB to `path` and return it.

    The embedding of the token `damaged` is not a number.
    """
    source = read_gguf(demo_path())
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("Tiny random llama")
    writer.add_context_length(context)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_rope_dimension_count(HEAD_DIM)
    vocab_tokens = _copy_tokenizer(source, writer)
    weights = _weights(vocab_tokens, seed)
    if damaged is not None:
        weights["token_embd.weight"][damaged] = np.nan
    for name, array in weights.items():
        writer.add_tensor(name, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _copy_tokenizer(source: GgufFile, writer: gguf.GGUFWriter) -> int:
    field: dict[str, Any] = {name.removeprefix("tokenizer."): value for name, value in source.metadata.items()}
    tokens = field["ggml.tokens"]
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model(field["ggml.model"])
    writer.add_tokenizer_pre(field["ggml.pre"])
    writer.add_token_list(tokens)
    writer.add_token_types(field["ggml.token_type"])
    writer.add_token_merges(field["ggml.merges"])
    writer.add_bos_token_id(field["ggml.bos_token_id"])
    writer.add_eos_token_id(field["ggml.eos_token_id"])
    writer.add_add_bos_token(False)
    writer.add_add_space_prefix(False)
    writer.add_chat_template(field["chat_template"])
    return len(tokens)


def _weights(vocab_tokens: int, seed: int) -> dict[str, NDArray[np.float32]]:
    random = np.random.default_rng(seed)

    def normal(rows: int, columns: int, gain: float = 1.0) -> NDArray[np.float32]:
        scaled = random.standard_normal((rows, columns)) * (gain / columns**0.5)
        return np.asarray(scaled, np.float32)

    ones = np.ones(HIDDEN, np.float32)
    weights = {"token_embd.weight": normal(vocab_tokens, HIDDEN, 4.0), "output_norm.weight": ones}
    weights["output.weight"] = normal(vocab_tokens, HIDDEN, 3.0)
    for layer in range(LAYERS):
        prefix = f"blk.{layer}."
        weights |= {
            prefix + "attn_norm.weight": ones,
            prefix + "attn_q.weight": normal(HEADS * HEAD_DIM, HIDDEN),
            prefix + "attn_k.weight": normal(KV_HEADS * HEAD_DIM, HIDDEN),
            prefix + "attn_v.weight": normal(KV_HEADS * HEAD_DIM, HIDDEN),
            prefix + "attn_output.weight": normal(HIDDEN, HEADS * HEAD_DIM),
            prefix + "ffn_norm.weight": ones,
            prefix + "ffn_gate.weight": normal(INNER, HIDDEN),
            prefix + "ffn_up.weight": normal(INNER, HIDDEN),
            prefix + "ffn_down.weight": normal(HIDDEN, INNER),
        }
    return weights
