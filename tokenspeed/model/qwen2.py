"""Qwen2 and Qwen2.5, dense: Llama with a bias on queries, keys and values."""

from __future__ import annotations

from tokenspeed.model.llama import Llama, LlamaAttention
from tokenspeed.model.shape import ModelShape


class Qwen2(Llama):
    """The language model."""

    @staticmethod
    def attention(shape: ModelShape) -> LlamaAttention:
        """Return the attention of one layer."""
        return LlamaAttention(shape.hidden, shape.heads, shape.kv_heads, shape.head_dim, qkv_bias=True)
