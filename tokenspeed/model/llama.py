"""Llama 2 and 3.x and their kin (Mistral, Qwen2, SmolLM2), as if for one device.

Attributes are named as the tensors of the checkpoints are. Kin that differ in their attention alone
replace `Llama.attention`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from tokenspeed.model.layers import (
    Attention,
    Embedding,
    ForwardStep,
    Head,
    KvPages,
    Linear,
    RmsNorm,
    Rope,
    Rotation,
    SiluMul,
)
from tokenspeed.model.module import SHARDED, Module
from tokenspeed.model.shape import ModelShape


class LlamaAttention(Module):
    """Grouped-query attention with rotary positions."""

    chain: tuple[str, ...] = ("qkv_proj", "attention", "o_proj")

    def __init__(
        self, hidden: int, heads: int, kv_heads: int, head_dim: int, qkv_bias: bool = False, output_bias: bool = False
    ) -> None:
        """Query heads share key heads in groups of heads / kv_heads."""
        queries, keys = heads * head_dim, kv_heads * head_dim
        outputs = {"q_proj": queries, "k_proj": keys, "v_proj": keys}
        self.qkv_proj = Linear(hidden, outputs, gives=SHARDED, bias=qkv_bias)
        self.attention = Attention(head_dim)
        self.o_proj = Linear(queries, hidden, takes=SHARDED, bias=output_bias)

    def __call__(self, x: torch.Tensor, rotation: Rotation, pages: KvPages, step: ForwardStep) -> torch.Tensor:
        """Return [tokens, hidden]."""
        return self.o_proj(self.attention(self.qkv_proj(x), rotation, pages, step))


class LlamaMlp(Module):
    """The SwiGLU block."""

    chain = ("gate_up_proj", "activation", "down_proj")

    def __init__(self, hidden: int, intermediate: int, bias: bool = False) -> None:
        """Widen to `intermediate` and come back."""
        widened = {"gate_proj": intermediate, "up_proj": intermediate}
        self.gate_up_proj = Linear(hidden, widened, gives=SHARDED, bias=bias)
        self.activation = SiluMul()
        self.down_proj = Linear(intermediate, hidden, takes=SHARDED, bias=bias)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Return [tokens, hidden]."""
        return self.down_proj(self.activation(self.gate_up_proj(x)))


class LlamaLayer(Module):
    """Attention and MLP, each behind a norm and beside the residual stream."""

    chain = ("input_layernorm", "self_attn", "post_attention_layernorm", "mlp")

    def __init__(self, attention: LlamaAttention, mlp: LlamaMlp, hidden: int, norm_eps: float) -> None:
        """One of the model's blocks."""
        self.input_layernorm = RmsNorm(hidden, norm_eps)
        self.self_attn = attention
        self.post_attention_layernorm = RmsNorm(hidden, norm_eps)
        self.mlp = mlp

    def __call__(
        self,
        x: torch.Tensor,
        residual: torch.Tensor | None,
        rotation: Rotation,
        pages: KvPages,
        step: ForwardStep,
        outputs: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return (what is to be added, the residual stream before it), of the tokens `outputs` or of all."""
        x, residual = self.input_layernorm(x, residual)
        x = self.self_attn(x, rotation, pages, step)
        if outputs is not None:
            x, residual = x.index_select(0, outputs), residual.index_select(0, outputs)
        x, residual = self.post_attention_layernorm(x, residual)
        return self.mlp(x), residual


class LlamaModel(Module):
    """Ids to hidden states."""

    chain = ("embed_tokens", "layers", "norm")

    def __init__(self, shape: ModelShape, max_position: int, attention: Callable[[ModelShape], LlamaAttention]) -> None:
        """`max_position` bounds the positions that will be asked for; `attention` makes a layer's."""
        self.embed_tokens = Embedding(shape.vocab, shape.hidden)
        self.rope = Rope(shape.rope, shape.head_dim, max_position)
        self.layers = [
            LlamaLayer(
                attention(shape),
                LlamaMlp(shape.hidden, shape.intermediate, shape.mlp_bias),
                shape.hidden,
                shape.norm_eps,
            )
            for _ in range(shape.layers)
        ]
        self.norm = RmsNorm(shape.hidden, shape.norm_eps)

    def __call__(self, step: ForwardStep, cache: Sequence[KvPages]) -> torch.Tensor:
        """Return [outputs, hidden]; `cache` has the pages of each layer."""
        x = self.embed_tokens(step.ids)
        residual: torch.Tensor | None = None
        rotation = self.rope(step.positions)
        for layer, pages in zip(self.layers[:-1], cache[:-1], strict=True):
            x, residual = layer(x, residual, rotation, pages, step)
        # Behind the last layer's attention nobody reads a token whose hidden state is not asked for.
        x, residual = self.layers[-1](x, residual, rotation, cache[-1], step, step.outputs)
        return self.norm(x, residual)[0]


class Llama(Module):
    """The language model: hidden states of a step, and logits of the rows that ask for them."""

    chain = ("model", "lm_head")

    def __init__(self, shape: ModelShape, max_position: int) -> None:
        """Declare everything; weights come with the loader."""
        self.model = LlamaModel(shape, max_position, self.attention)
        self.lm_head = Head(shape.vocab, shape.hidden, self.model.embed_tokens if shape.tied else None)

    @staticmethod
    def attention(shape: ModelShape) -> LlamaAttention:
        """Return the attention of one layer."""
        return LlamaAttention(
            shape.hidden, shape.heads, shape.kv_heads, shape.head_dim, shape.qkv_bias, shape.output_bias
        )

    def __call__(self, step: ForwardStep, cache: Sequence[KvPages]) -> torch.Tensor:
        """Return the hidden states [outputs, hidden]."""
        return self.model(step, cache)

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return float32 logits [rows, vocab] for hidden states [rows, hidden]."""
        return self.lm_head(hidden)
