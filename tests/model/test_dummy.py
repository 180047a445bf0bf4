"""Random weights: the same everywhere, and scaled as a trained model's."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tokenspeed_kernels import selector

from tests.dummies import SHAPE, write_shape
from tests.llamas import Driver, load
from tests.model.test_loader import Share
from tokenspeed.executor.cpu import CpuExecutor
from tokenspeed.model.build import declare_model
from tokenspeed.model.config import read_shape
from tokenspeed.model.dummy import BIAS_STD, LOGITS_STD, DummyTensors
from tokenspeed.model.module import Module

NAME = "model.layers.0.mlp.up_proj.weight"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_shape(tmp_path)


def dummy(folder: Path, shapes: dict[str, tuple[int, ...]]) -> DummyTensors:
    return DummyTensors(folder, read_shape(folder, dummy=True), shapes, "cpu")


def loaded(folder: Path, rank: int = 0, ranks: int = 1) -> Module:
    group = Share(rank, ranks)
    declared = declare_model(str(folder), 64, torch.float32, selector("cpu"), group, dummy=True)
    model = declared.load(lambda phase, share: None)
    assert isinstance(model, Module)
    return model


def executor(folder: Path) -> CpuExecutor:
    found = load(folder, load_format="dummy")
    assert isinstance(found, CpuExecutor)
    return found


def test_the_same_rows_however_they_are_read(folder: Path) -> None:
    tensors = dummy(folder, {NAME: (320, 128), "other.weight": (320, 128)})
    whole = tensors.read(NAME, 0, 320)
    assert torch.equal(torch.cat([tensors.read(NAME, 0, 7), tensors.read(NAME, 7, 320)]), whole)
    both = torch.stack([whole.flatten(), tensors.read("other.weight", 0, 320).flatten()])
    assert abs(torch.corrcoef(both)[0, 1]) < 0.02


def test_the_numbers_are_normal_and_pinned(folder: Path) -> None:
    """Recorded figures stay comparable only while these numbers stay."""
    numbers = dummy(folder, {NAME: (2048, 128)}).read(NAME, 0, 2048).double() * 128**0.5
    assert abs(numbers.mean()) < 0.01
    assert abs(numbers.std() - 1) < 0.01
    assert abs((numbers**4).mean() - 3) < 0.25
    assert [round(number, 4) for number in numbers[0, :4].tolist()] == [-0.2918, -0.2536, -0.2392, -0.2009]


def test_another_process_makes_the_same_numbers(folder: Path) -> None:
    script = (
        "from pathlib import Path; from tokenspeed.model.config import read_shape\n"
        "from tokenspeed.model.dummy import DummyTensors; import sys\n"
        "path = Path(sys.argv[1]); shape = read_shape(path, dummy=True)\n"
        f"print(DummyTensors(path, shape, {{{NAME!r}: (4, 128)}}, 'cpu').read({NAME!r}, 0, 4).double().sum().item())"
    )
    out = subprocess.run([sys.executable, "-c", script, str(folder)], capture_output=True, text=True, check=True)
    assert float(out.stdout) == dummy(folder, {NAME: (4, 128)}).read(NAME, 0, 4).double().sum().item()


def test_biases_are_small_and_norms_are_one(folder: Path) -> None:
    """The other tensors of one axis: what neither products nor norms would let get lost."""
    parameters = dict(loaded(write_shape(folder, model_type="qwen2")).parameters())
    assert 0.8 * BIAS_STD < parameters["model.layers.0.self_attn.qkv_proj.bias"].data.std() < 1.2 * BIAS_STD
    parameters = dict(loaded(write_shape(folder, model_type="qwen3")).parameters())
    assert parameters["model.layers.0.self_attn.k_norm.weight"].data.eq(1).all()


def test_ranks_hold_shares_of_the_same_numbers(folder: Path) -> None:
    """A projection cut by rows, one cut by columns, one of several pieces, and the embedding."""
    whole, *shares = loaded(folder), loaded(folder, 0, 2), loaded(folder, 1, 2)
    bounds = [64, 96]  # queries, keys and values of a share, side by side

    def weight(model: Module, path: str) -> torch.Tensor:
        return dict(model.parameters())[path].data

    for path, axis in (("model.embed_tokens.weight", 1), ("model.layers.0.mlp.down_proj.weight", 0)):
        assert torch.equal(torch.cat([weight(share, path) for share in shares], axis), weight(whole, path))
    path = "model.layers.1.self_attn.qkv_proj.weight"
    pieces = [weight(share, path).tensor_split(bounds, 1) for share in shares]
    joined = torch.cat([piece for pair in zip(*pieces, strict=True) for piece in pair], 1)
    assert torch.equal(joined, weight(whole, path))


@pytest.mark.parametrize("tied", [False, True])
def test_logits_are_spread_as_a_trained_models_are(folder: Path, tied: bool) -> None:
    model = executor(write_shape(folder, tie_word_embeddings=tied))._model
    hidden = torch.randn(64, SHAPE["hidden_size"], generator=torch.Generator().manual_seed(1))
    logits = model.logits(hidden)
    assert 0.8 * LOGITS_STD < logits.std() < 1.2 * LOGITS_STD


def test_the_residual_stream_stays_near_one(folder: Path) -> None:
    parts = executor(write_shape(folder, num_hidden_layers=16))
    driver = Driver(parts)
    streams: list[torch.Tensor] = []
    model = parts._model.model  # type: ignore[attr-defined]
    norm = model.norm

    def listen(x: torch.Tensor, residual: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        streams.append(x + residual)
        return norm(x, residual)  # type: ignore[no-any-return]

    model.norm = listen
    driver.open(1)
    driver.run((1, list(range(300, 364)), 0, True))
    assert 0.9 < streams[0].std() < 1.5


def test_greedy_text_does_not_collapse_and_repeats_itself_when_asked_again(folder: Path) -> None:
    replies = [Driver(executor(folder)).generate(1, list(range(7, 47)), 60) for _ in range(2)]
    assert replies[0] == replies[1]
    assert len(set(replies[0])) > 12
    assert Driver(executor(folder)).generate(1, list(range(8, 48)), 60) != replies[0]
