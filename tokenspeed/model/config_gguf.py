"""The shape of a model, read from the metadata of a GGUF file.

Owns the translation of GGUF's keys, each of which begins with the architecture's name. It reads no
weights, except for the few numbers by which some files write their rope scaling. Mistral has no
architecture of its own there: its files say llama. Which biases there are is told by the tensors alone.

Invariant: what a shape cannot say was refused with the name of the key, what it was and what is allowed.
"""

from __future__ import annotations

import numpy as np

from tokenspeed.errors import StartError
from tokenspeed.formats.checkpoint import GGUF_ARCHITECTURES, gguf_window
from tokenspeed.formats.gguf import GgufFile
from tokenspeed.model.shape import Architecture, ModelShape, RopeShape, check_positive, yarn_magnitude

GGUF_ROPE_FACTORS = "rope_freqs.weight"


def gguf_architecture(file: GgufFile) -> Architecture:
    """Return which architecture `file` has; raises `StartError`."""
    name = file.need("general.architecture", str)
    for known in GGUF_ARCHITECTURES:
        if name == known:
            return known
    raise StartError(f"{file.path} has the architecture {name}; supported here: {', '.join(GGUF_ARCHITECTURES)}.")


def shape_of_gguf(file: GgufFile) -> ModelShape:
    """Return the shape that the metadata of `file` describes."""
    architecture = gguf_architecture(file)
    key = f"{architecture}.{{}}".format
    if file.get(key("expert_count"), int):
        raise StartError(
            f"{file.path}: {key('expert_count')} is {file.get(key('expert_count'), int)}; "
            "models without are supported here."
        )
    heads, hidden = file.need(key("attention.head_count"), int), file.need(key("embedding_length"), int)
    check_positive(file.path, heads=heads)
    head_dim = file.get(key("attention.key_length"), int) or hidden // heads
    turned = file.get(key("rope.dimension_count"), int) or head_dim
    if turned != head_dim:
        raise StartError(f"{file.path}: rope turns {turned} of {head_dim} dimensions; only all of them are supported.")
    embedding = file.tensors.get("token_embd.weight")
    return ModelShape(
        architecture=architecture,
        hidden=hidden,
        layers=file.need(key("block_count"), int),
        heads=heads,
        kv_heads=file.get(key("attention.head_count_kv"), int) or heads,
        head_dim=head_dim,
        intermediate=file.need(key("feed_forward_length"), int),
        vocab=embedding.shape[0] if embedding is not None else file.need(key("vocab_size"), int),
        norm_eps=file.need(key("attention.layer_norm_rms_epsilon"), float),
        rope=_rope(file, key("rope")),
        tied="output.weight" not in file.tensors,
        max_position=file.need(key("context_length"), int),
        window=gguf_window(file, architecture),
        qkv_bias="blk.0.attn_q.bias" in file.tensors,
        output_bias="blk.0.attn_output.bias" in file.tensors,
        mlp_bias="blk.0.ffn_down.bias" in file.tensors,
    )


def _rope(file: GgufFile, prefix: str) -> RopeShape:
    theta = file.get(f"{prefix}.freq_base", float) or 10_000.0
    if GGUF_ROPE_FACTORS in file.tensors:
        return RopeShape(theta=theta, kind="factors", factors=_rope_factors(file))
    kind = file.get(f"{prefix}.scaling.type", str) or "none"
    if kind == "none":
        return RopeShape(theta=theta)
    if kind == "linear":
        return RopeShape(theta=theta, kind="linear", factor=file.need(f"{prefix}.scaling.factor", float))
    if kind == "yarn":
        return _yarn(file, f"{prefix}.scaling", theta)
    raise StartError(f"{file.path} scales rope by {kind}; none, linear and yarn are supported here.")


def _yarn(file: GgufFile, prefix: str, theta: float) -> RopeShape:
    for name in ("yarn_ext_factor", "yarn_attn_factor", "yarn_log_multiplier"):
        if file.get(f"{prefix}.{name}", float) is not None:
            raise StartError(f"{file.path}: {prefix}.{name} is set; files without are supported here.")
    factor = file.need(f"{prefix}.factor", float)
    # The file's own factor comes on top of the published one.
    extra = file.get(f"{prefix}.attn_factor", float)
    return RopeShape(
        theta=theta,
        kind="yarn",
        factor=factor,
        attention_factor=yarn_magnitude(factor) * (1.0 if extra is None else extra),
        original_max_position=file.need(f"{prefix}.original_context_length", int),
        beta_fast=file.get(f"{prefix}.yarn_beta_fast", float) or 32.0,
        beta_slow=file.get(f"{prefix}.yarn_beta_slow", float) or 1.0,
    )


def _rope_factors(file: GgufFile) -> tuple[float, ...]:
    tensor = file.tensors[GGUF_ROPE_FACTORS]
    if tensor.type != "F32":
        raise StartError(f"{file.path} stores {tensor.name} as {tensor.type}; F32 is needed: convert it again.")
    numbers = np.fromfile(tensor.file, dtype="<f4", count=tensor.elements, offset=tensor.offset)
    return tuple(numbers.tolist())
