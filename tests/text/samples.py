"""Text and models that several tests share."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

from tokenspeed.config import ModelConfig, TokenizerConfig
from tokenspeed.demo import find_demo
from tokenspeed.text.byte_level import CHAR_OF_BYTE
from tokenspeed.text.prompt import PromptBuilder, load_prompt_builder
from tokenspeed.text.tokenizer import Tokenizer, load_tokenizer

needs_demo = pytest.mark.skipif(find_demo() is None, reason="the demo model is not installed")

TEXTS = [
    "",
    " ",
    "Hello, world!",
    "  leading and   inner    spaces  ",
    "tabs\tand\nnew\r\nlines\n\n\n  end ",
    "I'm, you're, we've, they'll, he'd, IT'S, don't",
    "Zahlen 0 12 345 6789 3.14159, 1_000  42 and ٣٤٥ ½ Ⅷ x² 三",
    "Größe, naïve café, Ångström, e\u0301 combining",
    "Съешь ещё этих мягких французских булок",
    "我能吞下玻璃而不伤身体。私はガラスを食べられます。",
    "나는 유리를 먹을 수 있어요 · أنا قادر على أكل الزجاج",
    "ฉันกินกระจกได้ मैं काँच खा सकता हूँ",
    "emoji 😀👩‍👩‍👧‍👦🇩🇪👍🏽 ❤️ end",
    "def f(x: int) -> str:\n    return f'{x!r:>10}' if x != 0 else \"\"  # done\n",
    '{"a": [1, 2.5e-3, null], "b": "\\u00e9\\n"}',
    "<div class='x'>&nbsp;</div> <|im_end|> <s> [INST] <|endoftext|>",
    "zero\u200bwidth nbsp\u00a0 bom\ufeff nul\x00 del\x7f soft\xadhyphen ideographic\u3000space",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "https://example.org/a?b=c&d=%20#e C:\\Users\\x $HOME ~!@#$%^&*()_+`-={}|[]\\:\";'<>?,./",
]

MARKS = ("<|im_start|>", "<|im_end|>", "<|endoftext|>")

_fragments = st.sampled_from(
    [*MARKS, "<|im_", "end|>", "<|", "|>", "<", ">", "im_end", "a", " ", "  ", "\n", "7", "é", "日", "😀", "'s", "\r\n"]
)
hostile_texts = st.lists(st.one_of(_fragments, st.text(max_size=4)), max_size=8).map("".join)


@functools.cache
def demo_tokenizer() -> Tokenizer:
    path = find_demo()
    assert path is not None
    return load_tokenizer(path)


def config_for(path: Path | str, max_model_len: int = 100_000, **changes: int) -> TokenizerConfig:
    return TokenizerConfig(
        model=ModelConfig(path=str(path), served_name="test", max_model_len=max_model_len), **changes
    )


@functools.cache
def demo_builder() -> PromptBuilder:
    path = find_demo()
    assert path is not None
    return load_prompt_builder(config_for(path))


def chat_json(*messages: dict[str, Any]) -> bytes:
    return json.dumps(messages).encode()


MERGES = [("h", "e"), ("l", "l"), ("he", "ll"), ("hell", "o"), ("Ġ", "w"), ("o", "r"), ("<", "|"), ("|", ">")]


def tokenizer_json(*added: dict[str, Any], **parts: Any) -> dict[str, Any]:
    """Return a small byte-level tokenizer.json: all bytes, then `MERGES`, then the tokens in `added`."""
    texts = [CHAR_OF_BYTE[byte] for byte in range(256)] + [left + right for left, right in MERGES]
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0",
        "truncation": {"direction": "Right", "max_length": 3, "strategy": "LongestFirst", "stride": 0},
        "padding": None,
        "added_tokens": [{**plain, "id": len(texts) + index, **token} for index, token in enumerate(added)],
        "normalizer": None,
        "pre_tokenizer": level,
        "post_processor": None,
        "decoder": level,
        "model": {"type": "BPE", "vocab": {text: i for i, text in enumerate(texts)}, "merges": MERGES},
        **parts,
    }


def write_folder(folder: Path, tokenizer: dict[str, Any], **files: Any) -> Path:
    """Write tokenizer.json and the companions in `files` (name without .json -> content)."""
    for name, content in {"tokenizer": tokenizer, **files}.items():
        (folder / f"{name}.json").write_text(json.dumps(content), "utf-8")
    (folder / "model.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")
    return folder
