"""Products with packed weights: against torch, and the same bits whatever computes them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from tokenspeed_kernels import native, selector
from tokenspeed_kernels.gemm import native_packed, packed, torch_packed
from tokenspeed_kernels.gemm.packed_weight import RANGE, PackedWeight, pack, packed_bytes, unpack

FORMS = [(4, True), (4, False), (8, True), (8, False)]


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    yield
    native.set_threads(1)


def parts(outputs: int, inputs: int, bits: int, low: bool) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    generator = torch.Generator().manual_seed(outputs + inputs)
    least, most = RANGE[bits]
    q = torch.randint(least, most + 1, (outputs, inputs), generator=generator)
    scale = torch.rand(outputs, inputs // 32, generator=generator).to(torch.float16) / 10
    lows = torch.randn(outputs, inputs // 32, generator=generator).to(torch.float16) / 10 if low else None
    return q, scale, lows


def weight_of(outputs: int, inputs: int, bits: int, low: bool) -> PackedWeight:
    return pack(*parts(outputs, inputs, bits, low), bits)


def rows_of(rows: int, inputs: int) -> torch.Tensor:
    return torch.randn(rows, inputs, generator=torch.Generator().manual_seed(rows))


@pytest.mark.parametrize(("bits", "low"), FORMS)
@pytest.mark.parametrize("outputs", [1, 16, 50])
def test_unpack_gives_the_numbers_that_were_packed(outputs: int, bits: int, low: bool) -> None:
    q, scale, lows = parts(outputs, 96, bits, low)
    weight = pack(q, scale, lows, bits)
    wanted = q.view(outputs, 3, 32) * scale.float()[..., None] + (lows.float()[..., None] if lows is not None else 0)
    assert torch.equal(unpack(weight), wanted.view(outputs, 96))
    assert weight.data.numel() == packed_bytes(outputs, 96, bits, low)


@pytest.mark.parametrize(("bits", "low"), FORMS)
@pytest.mark.parametrize(("outputs", "inputs", "rows"), [(1, 32, 1), (50, 96, 3), (192, 576, 9), (64, 1536, 70)])
def test_equal_to_the_reference(outputs: int, inputs: int, rows: int, bits: int, low: bool) -> None:
    weight, x = weight_of(outputs, inputs, bits, low), rows_of(rows, inputs)
    wanted = torch_packed.rounded(x).double() @ unpack(weight).double().T
    scale = torch_packed.rounded(x).double().abs() @ unpack(weight).double().abs().T
    found = packed(selector("cpu"))(x, weight)
    assert ((found - wanted).abs() <= 1e-6 * scale).all()


@pytest.mark.parametrize(("bits", "low"), FORMS)
def test_the_same_bits_with_any_instructions_threads_and_rows(
    bits: int, low: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    weight, x = weight_of(1200, 256, bits, low), rows_of(40, 256)
    wanted = native_packed.packed(x, weight)
    for isa in range(native.ISA + 1):
        monkeypatch.setattr(native_packed, "ISA", isa)
        for threads in (1, 2, 3):
            native.set_threads(threads)
            assert torch.equal(native_packed.packed(x, weight), wanted)
        for rows in range(1, 10):
            assert torch.equal(native_packed.packed(x[rows : 2 * rows], weight), wanted[rows : 2 * rows])


def test_rows_may_lie_apart_and_be_none() -> None:
    weight, x = weight_of(48, 64, 4, True), rows_of(6, 128)
    assert torch.equal(native_packed.packed(x[:, 64:], weight), native_packed.packed(x[:, 64:].contiguous(), weight))
    assert native_packed.packed(x[:0, :64], weight).shape == (0, 48)


def test_rows_of_zeros_and_of_tiny_numbers_give_zeros() -> None:
    weight = weight_of(32, 64, 8, True)
    x = torch.zeros(2, 64)
    x[1, 3] = 1e-38
    assert native_packed.packed(x, weight).abs().max() < 1e-35


@pytest.mark.parametrize("damage", [float("nan"), float("inf")])
def test_a_row_that_is_not_finite_gives_no_numbers(damage: float) -> None:
    """Rounded to 8 bits it would look sound: who checks the logits must see it, and in no other row."""
    weight, x = weight_of(48, 64, 4, True), rows_of(3, 64)
    sound = native_packed.packed(x, weight)
    x[1, 40] = damage
    found = native_packed.packed(x, weight)
    assert found[1].isnan().all()
    assert torch.equal(found[::2], sound[::2])


@pytest.mark.parametrize(("bits", "low"), FORMS)
def test_lookup(bits: int, low: bool) -> None:
    table, ids = weight_of(50, 96, bits, low), torch.tensor([0, 49, 17, 17])
    assert torch.equal(native_packed.packed_lookup(ids, table), unpack(table)[ids])


def test_an_id_behind_the_table_is_refused() -> None:
    with pytest.raises(native.KernelError, match="refused"):
        native_packed.packed_lookup(torch.tensor([50]), weight_of(50, 96, 4, False))
