"""`step.apply`: the packed upload, applied in torch and in Triton; on the GPU if there is one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from tokenspeed_kernels import KernelError, selector
from tokenspeed_kernels.sampling import SUPPRESS_MAX, SlotSettings
from tokenspeed_kernels.sampling.edits import ALLOWS
from tokenspeed_kernels.step import HEADER_WORDS, apply, pack_tail, tail_words, torch_apply, triton_apply

from tests.kernels.edits import Edits

CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"
SLOTS, PAGES_MAX = 70, 900


@dataclass(frozen=True)
class Opening(Edits):
    """A slot opening as messages have it."""

    seed: int = 3
    temperature: float = 0.7
    top_p: float = 0.95
    top_k: int = 20
    min_p: float = 0.01
    suppress_until: int = 9
    suppress: bytes = b""
    logprobs: int = -1
    prompt_logprobs: int = -1


class Device:
    """What a step changes, on one device, filled with what must not survive or must not change."""

    def __init__(self, device: str) -> None:
        """Mark every field."""
        self.device = device
        self.settings = SlotSettings.allocate(SLOTS, device)
        for name in SlotSettings.__dataclass_fields__:
            getattr(self.settings, name).fill_(77)
        self.page_table = torch.full((SLOTS, PAGES_MAX), -5, dtype=torch.int32, device=device)
        self.last_id = torch.arange(1000, 1000 + SLOTS, dtype=torch.int32, device=device)

    def state(self) -> list[torch.Tensor]:
        """Return every tensor, on the CPU."""
        names = SlotSettings.__dataclass_fields__
        settings = [getattr(self.settings, name) for name in names]
        return [tensor.cpu() for tensor in (*settings, self.page_table, self.last_id)]


def _upload(openings: list[Opening], pages: np.typing.NDArray[np.int32], at: int = HEADER_WORDS) -> torch.Tensor:
    words = np.full((at + tail_words(len(openings), len(pages)) + 1) // 2 * 2, -9, np.int32)
    assert pack_tail(words, at, openings, pages) <= len(words)
    return torch.from_numpy(words)


def _pages(count: int, group: int = 0) -> np.typing.NDArray[np.int32]:
    """Entries of different places, in no order."""
    places = np.random.default_rng(count).permutation((SLOTS - 1) * PAGES_MAX)[:count]
    columns = (places // PAGES_MAX + 1, np.full(count, group), places % PAGES_MAX, np.arange(count) + 1)
    return np.stack(columns, 1).astype(np.int32)


def _compare(upload: torch.Tensor, ids: list[int], slots: list[int]) -> tuple[Device, list[int]]:
    """Apply in both forms; they agree. Returns the kernel's device and ids."""
    reference, device = Device("cpu"), Device(DEVICE)
    wanted, seen = (torch.tensor(ids, dtype=torch.int32, device=where) for where in ("cpu", DEVICE))
    slot = torch.tensor(slots, dtype=torch.int32)
    torch_apply.apply(upload, wanted, slot, reference.settings, reference.page_table, reference.last_id)
    triton_apply.apply(upload.to(DEVICE), seen, slot.to(DEVICE), device.settings, device.page_table, device.last_id)
    assert seen.tolist() == wanted.tolist()
    for one, other in zip(device.state(), reference.state(), strict=True):
        assert torch.equal(one, other)
    return device, seen.tolist()


def test_nothing_to_apply() -> None:
    """An empty tail changes nothing, and ids that are there stay."""
    device, ids = _compare(_upload([], _pages(0)), [5, 0, 9], [1, 0, 2])
    assert ids == [5, 0, 9]
    for one, other in zip(device.state(), Device("cpu").state(), strict=True):
        assert torch.equal(one, other)


def test_an_opening_is_everything() -> None:
    """Each field lands in its slot and nowhere else; numbers keep all their bits."""
    suppress = np.array([4, 2, 9], np.int32).tobytes()
    opening = Opening(
        3,
        allowed=suppress,
        seed=2**64 - 2,
        top_p=0.1 + 0.2,
        top_k=2**40,
        min_p=1e-300,
        suppress_until=11,
        suppress=suppress,
        logprobs=7,
        prompt_logprobs=0,
    )
    device, _ = _compare(_upload([opening], _pages(0), at=HEADER_WORDS + 1), [0], [0])
    settings = device.settings
    assert settings.seed[3].item() == -2
    assert settings.temperature[3].item() == np.float32(0.7)
    assert (settings.top_p[3].item(), settings.min_p[3].item()) == (0.1 + 0.2, 1e-300)
    assert (settings.top_k[3].item(), settings.suppress_until[3].item()) == (2**31 - 1, 11)
    assert settings.suppress_count[3].item() == 3
    assert settings.suppress[3, :3].tolist() == [4, 2, 9]
    assert (settings.edits[3].item(), settings.logprobs[3].item(), settings.prompt_logprobs[3].item()) == (ALLOWS, 7, 0)
    others = [slot for slot in range(SLOTS) if slot != 3]
    for name in SlotSettings.__dataclass_fields__:
        assert (getattr(settings, name)[others] == 77).all()


def test_many_of_everything() -> None:
    """More openings, entries and tokens than one round of the grid takes, where it is cheap."""
    openings = [
        Opening(slot, seed=slot * 977, top_k=slot, suppress=np.arange(slot * 2 % 129, dtype=np.int32).tobytes())
        for slot in range(1, SLOTS)
    ]
    count = triton_apply.PROGRAMS * triton_apply.BLOCK_ITEMS + 33
    ids = [-1 if token % 3 else token for token in range(count)]
    device, seen = _compare(_upload(openings, _pages(count)), ids, [token % SLOTS for token in range(count)])
    assert seen == [1000 + token % SLOTS if token % 3 else token for token in range(count)]
    assert (device.page_table > 0).sum().item() == count


def test_other_groups_are_left_out() -> None:
    """The table belongs to group 0."""
    device, _ = _compare(_upload([], np.concatenate([_pages(3), _pages(200, group=1)])), [-1], [4])
    assert (device.page_table > 0).sum().item() == 3


def test_ids_may_lie_in_the_upload() -> None:
    """Token sections between header and tail, wherever they start."""
    upload = _upload([Opening(2)], _pages(5), at=HEADER_WORDS + 7)
    upload[HEADER_WORDS : HEADER_WORDS + 6] = torch.tensor([-1, 8, -1, 1, 0, 6], dtype=torch.int32)
    device, upload = Device(DEVICE), upload.to(DEVICE)
    ids, slots = upload[HEADER_WORDS : HEADER_WORDS + 3], upload[HEADER_WORDS + 3 : HEADER_WORDS + 6]
    triton_apply.apply(upload, ids, slots, device.settings, device.page_table, device.last_id)
    assert ids.tolist() == [1001, 8, 1006]
    assert device.settings.top_k[2].item() == 20


def test_too_many_suppressed_ids() -> None:
    """The slot is named."""
    opening = Opening(5, suppress=np.zeros(SUPPRESS_MAX + 1, np.int32).tobytes())
    with pytest.raises(KernelError, match=r"slot 5 suppresses 129 ids, at most 128"):
        _upload([opening], _pages(0))


@pytest.mark.skipif(not CUDA, reason="captures a graph")
def test_one_graph_serves_every_count() -> None:
    """Counts are read on the device."""
    upload = torch.zeros(4 * tail_words(60, 4000), dtype=torch.int32, device=DEVICE)
    device, reference = Device(DEVICE), Device("cpu")
    ids, slots = (torch.zeros(16, dtype=torch.int32, device=DEVICE) for _ in range(2))
    arguments = (upload, ids, slots, device.settings, device.page_table, device.last_id)
    triton_apply.apply(*arguments)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        triton_apply.apply(*arguments)
    for openings, pages in ((60, 4000), (0, 0), (1, 3), (0, 800)):
        packed = _upload([Opening(slot + 1, seed=pages) for slot in range(openings)], _pages(pages))
        upload[: len(packed)] = packed.to(DEVICE)
        graph.replay()
        torch_apply.apply(packed, ids.cpu(), slots.cpu(), reference.settings, reference.page_table, reference.last_id)
        for one, other in zip(device.state(), reference.state(), strict=True):
            assert torch.equal(one, other)


def test_the_catalogue_knows_both() -> None:
    """The torch form answers on the CPU, the kernel on a GPU."""
    assert apply(selector("cpu")) is torch_apply.apply
    assert apply(selector("cuda", capability=(9, 0))) is triton_apply.apply
