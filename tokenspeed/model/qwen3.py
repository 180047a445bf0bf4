"""Qwen3, dense: Llama with each query and key head normalised before it is turned."""

from __future__ import annotations

import torch

from tokenspeed.model.layers import ForwardStep, HeadNorm, KvPages, Rotation
from tokenspeed.model.llama import Llama, LlamaAttention
from tokenspeed.model.shape import ModelShape


class Qwen3Attention(LlamaAttention):
    """Grouped-query attention with normalised heads and rotary positions."""

    chain = ("qkv_proj", "q_norm", "k_norm", "attention", "o_proj")

    def __init__(
        self, hidden: int, heads: int, kv_heads: int, head_dim: int, qkv_bias: bool, output_bias: bool, norm_eps: float
    ) -> None:
        """Query heads share key heads in groups of heads / kv_heads."""
        super().__init__(hidden, heads, kv_heads, head_dim, qkv_bias, output_bias)
        self.q_norm = HeadNorm(head_dim, norm_eps)
        self.k_norm = HeadNorm(head_dim, norm_eps)
        self._group = heads // kv_heads
        self._head_dim = head_dim

    def __call__(self, x: torch.Tensor, rotation: Rotation, pages: KvPages, step: ForwardStep) -> torch.Tensor:
        """Return [tokens, hidden]."""
        heads = self.qkv_proj(x).view(len(x), -1, self._head_dim)
        kv_heads = heads.shape[1] // (self._group + 2)  # of this rank
        queries, keys, values = heads.tensor_split((-2 * kv_heads, -kv_heads), dim=1)
        normed = torch.cat((self.q_norm(queries), self.k_norm(keys), values), dim=1)
        return self.o_proj(self.attention(normed.flatten(1), rotation, pages, step))


class Qwen3(Llama):
    """The language model."""

    @staticmethod
    def attention(shape: ModelShape) -> LlamaAttention:
        """Return the attention of one layer."""
        return Qwen3Attention(
            shape.hidden,
            shape.heads,
            shape.kv_heads,
            shape.head_dim,
            shape.qkv_bias,
            shape.output_bias,
            shape.norm_eps,
        )
