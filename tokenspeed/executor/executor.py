"""Turns plans into ids.

Owns one rank's model, pages and slots, and runs one step at a time. It knows neither messages'
transport nor requests: a plan names slots and pages, and position is the only progress.

Invariant: a step's outcome depends on the plan and on what earlier plans wrote; a plan that is
refused changes nothing.
"""

from __future__ import annotations

import os
from typing import NamedTuple

import numpy as np
import torch
from tokenspeed_kernels import KernelError, Selector, selector
from tokenspeed_kernels.attention import AttentionRows
from tokenspeed_kernels.sampling import DrawKernel, draw
from tokenspeed_kernels.selection import parse_overrides

from tokenspeed.config import ExecutorConfig
from tokenspeed.errors import StartError
from tokenspeed.executor.batch import Batch, Limits, Plan
from tokenspeed.executor.memory import check_memory, pages_that_fit
from tokenspeed.executor.pools import PagePool, PageShape, SlotPool
from tokenspeed.executor.ranks import join_group
from tokenspeed.executor.sampler import sample
from tokenspeed.messages.executor import StepPlan
from tokenspeed.model.build import Declared, LanguageModel, declare_model
from tokenspeed.model.layers import ForwardStep
from tokenspeed.model.loader import Progress

DTYPES = {"float32": torch.float32}
# One row as in decode, one as in prefill.
WARM_UP_TOKENS = (1, 16)


class StepIds(NamedTuple):
    """Outcome of a step: `counts` per sampled row in row order, then `ids`; both int32 bytes."""

    counts: bytes
    ids: bytes


class Executor:
    """One rank. `load` builds it; `step` runs in one thread at a time."""

    def __init__(
        self, model: LanguageModel, draw: DrawKernel, pages: PagePool, slots: SlotPool, limits: Limits
    ) -> None:
        """Take the parts; see `load`."""
        self._model = model
        self._draw = draw
        self._pages = pages
        self._slots = slots
        self._limits = limits
        self.page_tokens = limits.page_tokens
        self.pages_total = (pages.pages_total,)
        self.slots = slots.slots
        self.vocab_tokens = limits.vocab

    @classmethod
    def load(cls, config: ExecutorConfig, progress: Progress) -> Executor:
        """Read the model and reserve everything; `progress` hears (phase, share done).

        Raises `StartError` if the model cannot be read, is not supported or does not fit.
        """
        try:
            return cls._load(config, progress)
        except KernelError as error:
            raise StartError(str(error)) from error

    @classmethod
    def _load(cls, config: ExecutorConfig, progress: Progress) -> Executor:
        kernels = _kernels(config)
        torch.set_num_threads(config.threads or max(1, len(os.sched_getaffinity(0)) // config.ranks))
        progress("read the checkpoint", 0.0)
        group = join_group(config.rank, config.ranks, config.rendezvous)
        length = config.model.max_model_len
        declared = declare_model(
            config.model.path,
            length,
            DTYPES[config.model.dtype],
            kernels,
            group,
            config.device,
            dummy=config.model.load_format == "dummy",
        )
        page = _page_shape(declared, config.page_tokens)
        pages_total = pages_that_fit(page, config.kv_cache_bytes, min(length, config.page_tokens))
        check_memory(declared.weights_bytes, pages_total * page.bytes)
        model = declared.load(progress)
        # A slot is free again only with the result of the last step that named it: twice as many as
        # run at once, so that no admission waits for that.
        slots = SlotPool(1 + 2 * config.max_num_seqs, length, config.page_tokens)
        limits = Limits(slots.slots, pages_total, slots.pages_max, config.page_tokens, length, declared.shape.vocab)
        executor = cls(model, draw(kernels), PagePool(page, pages_total), slots, limits)
        executor._warm_up(progress)
        return executor

    def step(self, plan: StepPlan) -> StepIds:
        """Apply `plan`, run its rows and return the sampled ids; blocks.

        Raises `EngineError` for a plan that breaks a rule, before anything is written.
        """
        checked = Plan(plan, self._slots, self._limits)
        checked.apply(self._slots)
        batch = checked.expand(self._slots)
        ids = np.zeros(0, np.int32) if batch is None else self._run(batch)
        return StepIds(np.ones(len(ids), np.int32).tobytes(), ids.tobytes())

    def close(self) -> None:
        """Give the memory back."""
        del self._model, self._pages, self._slots

    @torch.inference_mode()
    def _run(self, batch: Batch) -> np.typing.NDArray[np.int32]:
        hidden = self._model(batch.forward, self._pages.layers)
        if not len(batch.sample_slots):
            return np.zeros(0, np.int32)
        logits = self._model.logits(hidden.index_select(0, batch.sample_tokens))
        ids = sample(logits, batch.sample_slots, batch.sample_positions, self._slots, self._draw).numpy()
        self._slots.last_id[batch.sample_slots] = ids
        return ids.astype(np.int32)

    def _warm_up(self, progress: Progress) -> None:
        """Run rows of slot 0 into page 0, so that no request pays for first calls."""
        for done, tokens in enumerate(WARM_UP_TOKENS):
            progress("warm up", done / len(WARM_UP_TOKENS))
            self._run(_padding_batch(min(tokens, self.page_tokens, self._limits.max_model_len)))
        progress("warm up", 1.0)


def _padding_batch(tokens: int) -> Batch:
    positions = torch.arange(tokens)
    rows = AttentionRows(torch.tensor([tokens]), torch.tensor([0]), torch.zeros(1, 1, dtype=torch.int64))
    forward = ForwardStep(torch.zeros_like(positions), positions, positions, rows)
    return Batch(forward, positions[-1:], np.zeros(1, np.int64), np.array([tokens]))


def _kernels(config: ExecutorConfig) -> Selector:
    if config.device != "cpu":
        raise StartError(f"The device is {config.device}; cpu is supported.")
    if config.model.dtype not in DTYPES:
        raise StartError(f"The dtype is {config.model.dtype}; {', '.join(DTYPES)} is supported on {config.device}.")
    return selector(config.device, config=parse_overrides(config.kernels))


def _page_shape(declared: Declared, page_tokens: int) -> PageShape:
    shape = declared.shape
    return PageShape(shape.layers, page_tokens, declared.kv_heads, shape.head_dim, declared.dtype)
