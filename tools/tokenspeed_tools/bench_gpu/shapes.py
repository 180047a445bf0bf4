"""Sizes of models to measure with dummy weights, written as folders with config.json alone.

`llama8b` has the sizes of Llama 3.1 8B, with rope unscaled, which costs the same; `tiny` is for trying
the benchmark itself on a CPU. `python -m tokenspeed_tools.bench_gpu.shapes NAME FOLDER` writes one.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

COMMON: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_act": "silu",
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
    "tie_word_embeddings": False,
    "max_position_embeddings": 131072,
    "torch_dtype": "bfloat16",
}
SHAPES: dict[str, dict[str, Any]] = {
    "llama8b": {
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "vocab_size": 128256,
    },
    "tiny": {
        "hidden_size": 128,
        "intermediate_size": 384,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 64,
        "vocab_size": 2048,
    },
}


def layers_of(name: str) -> int:
    """Return how many layers the shape `name` has."""
    layers: int = SHAPES[name]["num_hidden_layers"]
    return layers


def write_shape(folder: Path, name: str = "llama8b", layers: int | None = None) -> Path:
    """Write config.json of the shape `name`, with `layers` layers if given, into `folder` and return `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {**COMMON, **SHAPES[name], "num_hidden_layers": layers or layers_of(name)}
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    return folder


def main() -> None:
    """Write the shape that the command line names."""
    parser = argparse.ArgumentParser("shapes", description="Write a folder with the config.json of a shape.")
    parser.add_argument("name", choices=sorted(SHAPES))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--layers", type=int, help="this many layers instead of the shape's own")
    options = parser.parse_args()
    write_shape(options.folder, options.name, options.layers)


if __name__ == "__main__":
    main()
