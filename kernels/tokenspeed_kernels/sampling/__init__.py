"""The choice of the next token.

`sampling.draw` draws one id per row from logits. The distribution is softmax(logits / temperature)
of float32, cut in this order: `top_k` keeps the k likeliest; `top_p` keeps the shortest run of the
likeliest whose share of what top_k left reaches p; `min_p` drops what is less likely than min_p
times the likeliest. Tokens are ranked by (probability, then the lower id first), so a tie at a cut
is settled, and what is kept is always a prefix of that ranking with at least one token.

Among the kept tokens the largest logit / temperature + Gumbel(0, 1) wins (Gumbel-max trick), equal
sums going to the lower id. The noise depends on seed, position and token alone (`philox`), so a
request draws the same tokens alone, in any batch, and again after a restart.

`sampling.choose` is the end of a step on a device: it takes the settings from the slots, leaves
suppressed ids out, takes the largest logit for greedy rows and draws for the others, in one go and
without a word from the host.

`sampling.adjust` changes the logits of slots that ask for it, before the choice, in this order: an
id of prompt or reply has its logit divided by the repetition penalty if it is positive, multiplied
if not; an id that came n > 0 times in the reply loses n * frequency + presence penalty; biases are
added; ids that are not allowed, and the last ids of bad words whose other ids the reply ends in,
become minus infinity. `sampling.logprobs` says how likely what was chosen is, and what is likeliest,
by softmax of the logits before all that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, Self

import torch

from tokenspeed_kernels.platforms import CPU, GPU
from tokenspeed_kernels.sampling.edits import SlotEdits
from tokenspeed_kernels.selection import Selector
from tokenspeed_kernels.spec import KernelSpec, ask

# Below this a temperature is greedy: dividing by it would leave one token anyway, or overflow.
GREEDY_BELOW = 1e-5
# Ids that one slot can suppress.
SUPPRESS_MAX = 128
# How many of the likeliest ids a log-probability brings along at most, and the words of one with all.
LOGPROBS_MAX = 20
ENTRY_WORDS = 3 + 2 * LOGPROBS_MAX


@dataclass(frozen=True, slots=True)
class DrawRows:
    """Settings of the rows to draw for, each a tensor [rows].

    `temperature` (float32, above 0), `top_p` and `min_p` (float64; 1 and 0 are off), `top_k` (int64;
    0 is off), `seed` (int64, the bits of an unsigned number), `position` (int64, the index in the
    sequence of the token that is drawn).
    """

    temperature: torch.Tensor
    top_k: torch.Tensor
    top_p: torch.Tensor
    min_p: torch.Tensor
    seed: torch.Tensor
    position: torch.Tensor


class DrawKernel(Protocol):
    """Draws one id per row."""

    def __call__(self, logits: torch.Tensor, rows: DrawRows) -> torch.Tensor:
        """Return int64 ids [rows]; `logits` is float32 [rows, vocab], minus infinity is never drawn."""
        ...


def draw(kernels: Selector) -> DrawKernel:
    """Return the kernel of `sampling.draw`."""
    return kernels.select_kernel(ask("sampling", "draw", torch.float32))


@dataclass(frozen=True, slots=True)
class SlotSettings:
    """Sampling settings of every slot on one device; slot 0 is padding, and greedy.

    Tensors [slots]: `temperature` (float32; below `GREEDY_BELOW` is greedy), `top_k` (int32; 0 is
    off), `top_p` and `min_p` (float64; 1 and 0 are off), `seed` (int64, the bits of an unsigned
    number). For positions below `suppress_until` (int32) the first `suppress_count` (int32) ids of
    `suppress` (int32 [slots, SUPPRESS_MAX]) are not chosen. `edits` (int32) are the bits of what the
    slot asks of `adjust`, 0 for nothing. `logprobs` and `prompt_logprobs` (int32) say how many of the
    likeliest ids a choice, and a token of the prompt, brings along; -1 is off.
    """

    temperature: torch.Tensor
    top_k: torch.Tensor
    top_p: torch.Tensor
    min_p: torch.Tensor
    seed: torch.Tensor
    suppress_until: torch.Tensor
    suppress_count: torch.Tensor
    suppress: torch.Tensor
    edits: torch.Tensor
    logprobs: torch.Tensor
    prompt_logprobs: torch.Tensor

    @classmethod
    def allocate(cls, slots: int, device: torch.device | str) -> Self:
        """Reserve everything at once; every slot is greedy until it is opened."""

        def zeros(dtype: torch.dtype, *shape: int) -> torch.Tensor:
            return torch.zeros((slots, *shape), dtype=dtype, device=device)

        return cls(
            temperature=zeros(torch.float32),
            top_k=zeros(torch.int32),
            top_p=zeros(torch.float64) + 1.0,
            min_p=zeros(torch.float64),
            seed=zeros(torch.int64),
            suppress_until=zeros(torch.int32),
            suppress_count=zeros(torch.int32),
            suppress=zeros(torch.int32, SUPPRESS_MAX),
            edits=zeros(torch.int32),
            logprobs=zeros(torch.int32) - 1,
            prompt_logprobs=zeros(torch.int32) - 1,
        )


class ChooseKernel(Protocol):
    """Chooses the next id of each row, and remembers it in the row's slot."""

    def __call__(
        self,
        logits: torch.Tensor,
        settings: SlotSettings,
        slots: torch.Tensor,
        positions: torch.Tensor,
        last_id: torch.Tensor,
        adjusted: Adjusted | None = None,
    ) -> torch.Tensor:
        """Return int32 ids [rows]; -1 for a row whose `logits` do not have a finite sum, or which has no id left.

        `logits` is float32 [rows, vocab] with adjacent columns and is left as it is; `slots` and
        `positions` (of the tokens that are chosen) are int32 [rows]. Also writes the ids to
        `last_id` (int32 [slots]), 0 for -1 and for slot 0, which many padding rows may share.
        With `adjusted`, slots with edits choose by its logits, and ids are written to its history.
        """
        ...


@dataclass(frozen=True, slots=True)
class Adjusted:
    """What `sampling.adjust` made, for the choice behind it.

    `logits` is float32 [rows, vocab]; only rows of slots with edits are read. `history`, int32
    [slots, positions], gets each id at its position, 0 for -1, unless it ends before that.
    """

    logits: torch.Tensor
    history: torch.Tensor


def choose(kernels: Selector) -> ChooseKernel:
    """Return the kernel of `sampling.choose`."""
    return kernels.select_kernel(ask("sampling", "choose", torch.float32))


class AdjustKernel(Protocol):
    """Changes the logits of slots that ask for it."""

    def __call__(
        self, logits: torch.Tensor, asked: torch.Tensor, edits: SlotEdits, slots: torch.Tensor, positions: torch.Tensor
    ) -> torch.Tensor:
        """Return float32 [rows, vocab], the changed `logits`; rows of slots that ask for nothing are not written.

        `logits` is float32 [rows, vocab] with adjacent columns and is left as it is. `asked` are the
        bits of `edits` by slot (int32 [slots], see `SlotSettings`); `slots` and `positions` (of the
        tokens that are to be chosen) are int32 [rows]. A history counts up to its row's position.
        """
        ...


def adjust(kernels: Selector) -> AdjustKernel:
    """Return the kernel of `sampling.adjust`."""
    return kernels.select_kernel(ask("sampling", "adjust", torch.float32))


class LogprobsKernel(Protocol):
    """Says how likely given ids are, and which are likeliest."""

    def __call__(self, logits: torch.Tensor, ids: torch.Tensor, slots: torch.Tensor, top: torch.Tensor) -> torch.Tensor:
        """Return int32 [rows, ENTRY_WORDS], an entry for each row.

        `logits` is float32 [rows, vocab] with adjacent columns; `ids` and `slots` are int32 [rows],
        `top` int32 [slots]. The entry of a row whose slot has top k >= 0 is, in 4-byte words: id; rank,
        1 + how many logits are strictly greater; log-probability (float32); the k likeliest ids, equal
        ones by the lower id; their log-probabilities (float32). The rest of an entry, and those of
        other rows and of ids below 0, mean nothing. k is at most LOGPROBS_MAX and the vocabulary.
        """
        ...


def logprobs(kernels: Selector) -> LogprobsKernel:
    """Return the kernel of `sampling.logprobs`."""
    return kernels.select_kernel(ask("sampling", "logprobs", torch.float32))


SPECS = (
    KernelSpec(
        name="torch_draw",
        family="sampling",
        mode="draw",
        solution="torch",
        entry="tokenspeed_kernels.sampling.torch_draw:draw",
        capability=CPU,
        dtypes=frozenset({torch.float32}),
        tags=frozenset({"reference"}),
    ),
    KernelSpec(
        name="torch_choose",
        family="sampling",
        mode="choose",
        solution="torch",
        entry="tokenspeed_kernels.sampling.torch_choose:choose",
        capability=CPU,
        dtypes=frozenset({torch.float32}),
        tags=frozenset({"reference"}),
    ),
    KernelSpec(
        name="triton_choose",
        family="sampling",
        mode="choose",
        solution="triton",
        entry="tokenspeed_kernels.sampling.triton_choose:choose",
        requires=("triton",),
        capability=GPU,
        dtypes=frozenset({torch.float32}),
        tags=frozenset({"latency", "throughput"}),
    ),
    KernelSpec(
        name="torch_adjust",
        family="sampling",
        mode="adjust",
        solution="torch",
        entry="tokenspeed_kernels.sampling.torch_adjust:adjust",
        capability=CPU,
        dtypes=frozenset({torch.float32}),
        tags=frozenset({"reference"}),
    ),
    KernelSpec(
        name="triton_adjust",
        family="sampling",
        mode="adjust",
        solution="triton",
        entry="tokenspeed_kernels.sampling.triton_adjust:adjust",
        requires=("triton",),
        capability=GPU,
        dtypes=frozenset({torch.float32}),
        tags=frozenset({"latency", "throughput"}),
    ),
    KernelSpec(
        name="torch_logprobs",
        family="sampling",
        mode="logprobs",
        solution="torch",
        entry="tokenspeed_kernels.sampling.torch_logprobs:logprobs",
        capability=CPU,
        dtypes=frozenset({torch.float32}),
        tags=frozenset({"reference"}),
    ),
    KernelSpec(
        name="triton_logprobs",
        family="sampling",
        mode="logprobs",
        solution="triton",
        entry="tokenspeed_kernels.sampling.triton_logprobs:logprobs",
        requires=("triton",),
        capability=GPU,
        dtypes=frozenset({torch.float32}),
        tags=frozenset({"latency", "throughput"}),
    ),
)
