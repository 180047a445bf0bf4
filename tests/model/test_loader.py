"""Checkpoints that do not fit, and shares of those that do."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from tokenspeed_kernels import selector

from tests.llamas import LLAMA3_ROPE, random_llama, random_model, save_folder, save_gguf
from tokenspeed.errors import StartError
from tokenspeed.model.build import Declared, declare_model
from tokenspeed.model.placement import OneRank

Tensors = dict[str, torch.Tensor]


class Share(OneRank):
    """One of several ranks that never exchange anything."""

    def __init__(self, rank: int, ranks: int) -> None:
        self.rank = rank
        self.ranks = ranks


def _declare(path: Path, rank: int = 0, ranks: int = 1) -> Declared:
    return declare_model(str(path), 64, torch.float32, selector("cpu"), Share(rank, ranks))


def _load(path: Path) -> list[tuple[str, float]]:
    heard: list[tuple[str, float]] = []
    _declare(path).load(lambda phase, share: heard.append((phase, share)))
    return heard


def _rewrite(path: Path, change: Any) -> None:
    tensors = safetensors.torch.load_file(path / "model.safetensors")
    change(tensors)
    safetensors.torch.save_file(tensors, path / "model.safetensors")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A good checkpoint."""
    return save_folder(random_llama(), tmp_path / "checkpoint")


def test_every_fault_is_named_at_once(folder: Path) -> None:
    """Missing, unexpected and misshapen tensors come in one message."""

    def change(tensors: Tensors) -> None:
        del tensors["model.layers.1.mlp.up_proj.weight"], tensors["model.norm.weight"]
        tensors["model.layers.0.self_attn.q_proj.bias"] = torch.zeros(48)
        tensors["model.layers.2.self_attn.k_proj.weight"] = torch.zeros(24, 47)

    _rewrite(folder, change)
    with pytest.raises(StartError) as caught:
        _load(folder)
    for words in (
        "missing: model.layers.1.mlp.up_proj.weight, model.norm.weight",
        "unexpected: model.layers.0.self_attn.q_proj.bias",
        "of another shape: model.layers.2.self_attn.k_proj.weight is 24 x 47, not 24 x 48",
    ):
        assert words in caught.value.message


def test_gguf_faults_carry_gguf_names(tmp_path: Path) -> None:
    """A GGUF file with a layer too few is told in its own words."""
    model = random_llama()
    model.model.layers = model.model.layers[:2]
    with pytest.raises(StartError) as caught:
        _load(save_gguf(model, tmp_path / "cut.gguf"))
    assert "missing: blk.2.attn_norm.weight, blk.2.attn_q.weight" in caught.value.message


def test_progress_ends_at_one(folder: Path) -> None:
    """Progress grows and ends with everything read."""
    shares = [share for _, share in _load(folder)]
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "consolidated.00.pth"])
def test_pickled_checkpoints_are_refused(name: str, folder: Path) -> None:
    """Nothing is unpickled, and the message says why and what to do."""
    (folder / "model.safetensors").rename(folder / name)
    with pytest.raises(StartError, match=f"pickled weights .*{name}"):
        _load(folder)


def test_cut_files(folder: Path, tmp_path: Path) -> None:
    """A file that ends early is refused before its weights are used."""
    gguf = save_gguf(random_llama(), tmp_path / "model.gguf")
    for path, file in ((folder, folder / "model.safetensors"), (gguf, gguf)):
        data = file.read_bytes()
        file.write_bytes(data[: len(data) // 2])
        with pytest.raises(StartError, match=f"ends at byte {len(data) // 2}"):
            _load(path)


def test_types_that_cannot_be_read(folder: Path) -> None:
    """An integer tensor is refused by name."""
    _rewrite(folder, lambda tensors: tensors.update({"model.norm.weight": torch.zeros(48, dtype=torch.int32)}))
    with pytest.raises(StartError, match=r"stores model\.norm\.weight as I32; F32, F16, BF16 can be read"):
        _load(folder)


def test_head_beside_a_tied_embedding_is_ignored(tmp_path: Path) -> None:
    """Some checkpoints carry the tied head twice."""
    folder = save_folder(random_llama(tie_word_embeddings=True), tmp_path / "checkpoint")
    _rewrite(folder, lambda tensors: tensors.update({"lm_head.weight": torch.zeros(3)}))
    declared = _declare(folder)
    declared.load(lambda phase, share: None)
    assert declared.model.lm_head.weight is declared.model.model.embed_tokens.weight


def test_absent_head_is_tied_with_a_warning(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The configuration says untied, the weights say tied: the weights are right."""
    _rewrite(folder, lambda tensors: tensors.pop("lm_head.weight"))
    assert _declare(folder).shape.tied
    assert "has no lm_head.weight" in caplog.text


@pytest.mark.parametrize("family", ["Llama", "Qwen2", "Qwen3"])
def test_shares_make_up_the_whole(family: str, tmp_path: Path) -> None:
    """What two ranks read, put together piece by piece, is what one rank reads; so from GGUF too."""
    model = random_model(family, vocab_size=260, rope_parameters=LLAMA3_ROPE)
    for path in (save_folder(model, tmp_path / "folder"), save_gguf(model, tmp_path / "file.gguf")):
        whole, *halves = (_declare(path, *place) for place in ((0, 1), (0, 2), (1, 2)))
        for declared in (whole, *halves):
            declared.load(lambda phase, share: None)
        assert halves[0].weights_bytes < whole.weights_bytes
        parameters = [dict(declared.model.parameters()) for declared in (whole, *halves)]
        for name, parameter in parameters[0].items():
            shares = [half[name].data.t() for half in parameters[1:]]
            if parameter.cut == 0:
                joined = _by_pieces(shares, parameter.pieces.values())
            else:
                joined = torch.cat(shares, dim=1) if parameter.cut == 1 else shares[1]
            assert torch.equal(joined, parameter.data.t()), name


@pytest.mark.parametrize(("family", "tensor"), [("Qwen2", "attn_k.bias"), ("Qwen3", "attn_q_norm.weight")])
def test_missing_tensors_of_qwen_carry_gguf_names(family: str, tensor: str, tmp_path: Path) -> None:
    """Biases and norms of heads too are told in the file's own words."""
    model = random_model(family)
    model.model.layers = model.model.layers[:2]
    with pytest.raises(StartError, match=rf"missing: .*blk\.2\.{tensor}"):
        _load(save_gguf(model, tmp_path / "cut.gguf"))


def test_a_window_shorter_than_the_context_is_refused(tmp_path: Path) -> None:
    """Before anything is read."""
    folder = save_folder(random_model("Mistral", sliding_window=63), tmp_path / "checkpoint")
    with pytest.raises(StartError, match="sliding_window is 63, and max_model_len is 64"):
        _declare(folder)


def test_sizes_that_do_not_divide(folder: Path) -> None:
    """Three ranks cannot share four heads."""
    with pytest.raises(StartError, match=r"kv_heads \(2\) does not divide among 3 ranks"):
        _declare(folder, 0, 3)


def test_index_without_its_shard(folder: Path) -> None:
    """A shard that the index names and nobody brought is named."""
    names = list(safetensors.torch.load_file(folder / "model.safetensors"))
    shard = "model-00002-of-00002.safetensors"
    index = {"weight_map": {name: shard if "norm" in name else "model.safetensors" for name in names}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(StartError, match=shard):
        _load(folder)


def _by_pieces(shares: list[torch.Tensor], sizes: Iterable[int]) -> torch.Tensor:
    parts = []
    first = 0
    for size in sizes:
        parts += [share[first : first + size // 2] for share in shares]
        first += size // 2
    return torch.cat(parts)
