"""Turns plans into ids on the CPU.

Owns one rank's model, pages and slots, and runs one step at a time in a thread of its own. It knows
neither messages' transport nor requests: a plan names slots and pages, and position is the only
progress.

Invariant: a step's outcome depends on the plan and on what earlier plans wrote; a plan that is
refused changes nothing.
"""

from __future__ import annotations

import numpy as np
import torch
from tokenspeed_kernels import KernelError, Selector, native, selector
from tokenspeed_kernels.attention import AttentionRows
from tokenspeed_kernels.selection import parse_overrides

from tokenspeed.config import ExecutorConfig
from tokenspeed.errors import StartError, UserError
from tokenspeed.executor.batch import Batch, Limits, Plan, cpu_batch, owned
from tokenspeed.executor.completion import StepIds, StepThread
from tokenspeed.executor.face import StepOutcome
from tokenspeed.executor.memory import check_memory, pages_that_fit
from tokenspeed.executor.pools import PagePool, PageShape, SlotPool
from tokenspeed.executor.ranks import join_group
from tokenspeed.executor.sampler import SampleKernels, entries, sample
from tokenspeed.ipc.trace import NOWHERE, Trace
from tokenspeed.kernel_slices import KernelSlice
from tokenspeed.machine import cores
from tokenspeed.messages.executor import StepPlan
from tokenspeed.model.build import Declared, LanguageModel, declare_model
from tokenspeed.model.layers import ForwardStep
from tokenspeed.model.loader import Progress
from tokenspeed.points import Kind, Stage

# What is computed with, and whether weights stay whole numbers.
DTYPES = {"int8": (torch.float32, True), "float32": (torch.float32, False)}
LAUNCH_BEGIN, LAUNCHED, STAGE = int(Kind.LAUNCH_BEGIN), int(Kind.LAUNCHED), int(Kind.STAGE)
NOTHING = StepIds(b"", b"", b"", b"")
# Logits [rows, vocab] are float32 and large: so many rows are scored at a time, however long the prompt.
SLICE_ROWS = 64
# One row as in decode, one as in prefill.
WARM_UP_TOKENS = (1, 16)


class CpuExecutor:
    """One rank; see `tokenspeed.executor.face.Executor`. `load` builds it."""

    def __init__(
        self,
        model: LanguageModel,
        kernels: SampleKernels,
        pages: PagePool,
        slots: SlotPool,
        limits: Limits,
        thread: StepThread,
        trace: Trace = NOWHERE,
    ) -> None:
        """Take the parts; see `load`."""
        self._trace = trace
        self._model = model
        self._kernels = kernels
        self._pages = pages
        self._slots = slots
        self._limits = limits
        self._thread = thread
        self.page_tokens = limits.page_tokens
        self.pages_total: tuple[int, ...] = (pages.pages_total,)
        self.slots = slots.slots
        self.vocab_tokens = limits.vocab

    @classmethod
    def load(cls, config: ExecutorConfig, progress: Progress, trace: Trace = NOWHERE) -> CpuExecutor:
        """Read the model and reserve everything; `progress` hears (phase, share done), from a thread.

        Raises `StartError` if the model cannot be read, is not supported or does not fit.
        """
        thread = StepThread(trace)
        try:
            # What a thread warms up (its OpenMP team, the caches of torch's libraries) is its own.
            return thread.call(lambda: cls._load(config, progress, trace, thread))
        except BaseException as error:
            thread.close()
            if isinstance(error, KernelError):
                raise StartError(str(error)) from error
            raise

    @classmethod
    def _load(cls, config: ExecutorConfig, progress: Progress, trace: Trace, thread: StepThread) -> CpuExecutor:
        kernels = _kernels(config)
        threads = config.threads or max(1, cores() // config.ranks)
        torch.set_num_threads(threads)
        native.set_threads(min(threads, native.THREADS_MAX))
        progress("read the checkpoint", 0.0)
        group = join_group(config.rank, config.ranks, config.rendezvous)
        length = config.model.max_model_len
        dummy = config.model.load_format == "dummy"
        dtype, packed = DTYPES[config.model.dtype]
        declared = declare_model(
            config.model.path,
            length,
            dtype,
            kernels,
            group,
            config.device,
            dummy=dummy,
            packed=packed,
            overrides=config.model.hf_overrides,
        )
        page = _page_shape(declared, config.page_tokens)
        pages_total = pages_that_fit(page, config.kv_cache_bytes, min(length, config.page_tokens))
        check_memory(declared.weights_bytes, pages_total * page.bytes)
        model = declared.load(progress)
        # A slot is free again only with the result of the last step that named it: twice as many as
        # run at once, so that no admission waits for that.
        slots = SlotPool(1 + 2 * config.max_num_seqs, length, config.page_tokens)
        limits = Limits(slots.slots, pages_total, slots.pages_max, config.page_tokens, length, declared.shape.vocab)
        sampling = SampleKernels.choose(kernels)
        executor = cls(model, sampling, PagePool(page, pages_total), slots, limits, thread, trace)
        executor._warm_up(progress)
        return executor

    def submit(self, plan: StepPlan) -> None:
        """Run `plan` behind those submitted before."""
        self._trace.point(LAUNCH_BEGIN, 0, plan.step)
        own = owned(plan)
        self._thread.submit(own.step, lambda: self.step(own))
        self._trace.point(LAUNCHED, 0, plan.step)

    def fileno(self) -> int:
        """Return a descriptor that is readable while outcomes wait."""
        return self._thread.fileno()

    def collect(self) -> list[StepOutcome]:
        """Return the outcomes that are there, in the order of `submit`."""
        return self._thread.collect()

    def forget(self) -> None:
        """Drop the outcomes of all plans submitted so far; those not yet begun will not run."""
        self._thread.forget()

    def begin_profile(self) -> None:
        """Raise `UserError`."""
        raise UserError(
            "A profile shows the kernels of a GPU, and this engine computes on the CPU; a recording without one shows "
            "the stages of each step.",
            code="no_profile",
        )

    def end_profile(self) -> list[KernelSlice]:
        """Return nothing: none was begun."""
        return []

    def close(self) -> None:
        """Wait for the step in hand, drop the others and give the memory back."""
        self._thread.close()
        del self._model, self._pages, self._slots

    def step(self, plan: StepPlan) -> StepIds:
        """Apply `plan`, run its rows and return what they bring; blocks.

        For a caller that submits nothing. Raises `EngineError` for a plan that breaks a rule, before
        anything is written.
        """
        self._stage(Stage.APPLY, plan.step)
        checked = Plan(plan, self._slots, self._limits)
        checked.apply(self._slots)
        batch = cpu_batch(checked, self._slots)
        return NOTHING if batch is None else self._run(batch, plan.step)

    def _stage(self, stage: Stage, step: int) -> None:
        self._trace.point(STAGE, 0, step, stage)

    @torch.inference_mode()
    def _run(self, batch: Batch, step: int) -> StepIds:
        self._stage(Stage.FORWARD, step)
        hidden = self._model(batch.forward, self._pages.layers)
        samples = len(batch.sample_slots)
        if len(hidden) > samples:
            self._stage(Stage.SCORE, step)
        scores = self._scores(hidden[samples:], batch)
        if not samples:
            return StepIds(b"", b"", b"", scores)
        self._stage(Stage.LOGITS, step)
        logits = self._model.logits(hidden[:samples])
        self._stage(Stage.SAMPLE, step)
        drawn = sample(logits, batch.sample_slots, batch.sample_positions, self._slots, self._kernels)
        return StepIds(
            drawn.counts.astype(np.int32).tobytes(), drawn.ids.astype(np.int32).tobytes(), drawn.logprobs, scores
        )

    def _scores(self, hidden: torch.Tensor, batch: Batch) -> bytes:
        """Return the entries of the tokens to score, whose hidden states are [scores, hidden].

        The head runs over few at a time: logits of a whole prompt would take gigabytes.
        """
        tops = self._slots.asks.prompt_logprobs[batch.score_slots]
        found = []
        for begin in range(0, len(hidden), SLICE_ROWS):
            part = slice(begin, begin + SLICE_ROWS)
            logits = self._model.logits(hidden[part])
            found.append(entries(logits, batch.score_ids[part], tops[part], self._kernels.logprobs))
        return b"".join(found)

    def _warm_up(self, progress: Progress) -> None:
        """Run rows of slot 0 into page 0, so that no request pays for first calls."""
        for done, tokens in enumerate(WARM_UP_TOKENS):
            progress("warm up", done / len(WARM_UP_TOKENS))
            self._run(_padding_batch(min(tokens, self.page_tokens, self._limits.max_model_len)), step=0)
        progress("warm up", 1.0)


def _padding_batch(tokens: int) -> Batch:
    positions = torch.arange(tokens)
    rows = AttentionRows(torch.tensor([tokens]), torch.tensor([0]), torch.zeros(1, 1, dtype=torch.int64))
    forward = ForwardStep(torch.zeros_like(positions), positions, positions, rows, positions[-1:])
    none = np.zeros(0, np.int64)
    return Batch(forward, np.zeros(1, np.int64), np.array([tokens]), none, none)


def _kernels(config: ExecutorConfig) -> Selector:
    if config.model.dtype not in DTYPES:
        raise StartError(f"The dtype is {config.model.dtype}; {', '.join(DTYPES)} are supported on {config.device}.")
    return selector(config.device, config=parse_overrides(config.kernels))


def _page_shape(declared: Declared, page_tokens: int) -> PageShape:
    shape = declared.shape
    return PageShape(shape.layers, page_tokens, declared.kv_heads, shape.head_dim, declared.dtype)
