"""Everything of one rank that lies on the GPU, and the computation of a step over it.

Owns the model, pages, slots, staging buffers, graphs and the stream they are used on. Position is
the only progress, and a plan tells it; nothing on the device counts.

Invariant: the stream's order alone keeps a slot or a page that changes hands right, and a step's
bits depend on its bucket and not on whether a graph replayed it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from tokenspeed_kernels import Selector, selector
from tokenspeed_kernels.attention import DecodeRows, ExtendRows, SlotRows
from tokenspeed_kernels.sampling import Adjusted, SlotSettings, adjust, choose, logprobs
from tokenspeed_kernels.sampling.edits import SlotEdits
from tokenspeed_kernels.selection import parse_overrides
from tokenspeed_kernels.step import apply

from tokenspeed.config import ExecutorConfig
from tokenspeed.errors import EngineError, StartError
from tokenspeed.executor.asks import SlotAsks
from tokenspeed.executor.batch import Limits, Plan
from tokenspeed.executor.cuda.buffers import Download, Sections, Upload
from tokenspeed.executor.cuda.clock import Mark, StepClock
from tokenspeed.executor.cuda.graphs import Chosen, DecodeGraphs, Step
from tokenspeed.executor.cuda.layout import (
    StepShape,
    bucket_of,
    buckets,
    shape_of,
    tail_words_max,
    write_step,
)
from tokenspeed.executor.cuda.memory import check_weights_fit, measured_peak, page_count
from tokenspeed.executor.cuda.results import Launched
from tokenspeed.executor.cuda.scores import SLICE_ROWS, padding
from tokenspeed.executor.pools import Ints, PagePool, PageShape, PageTables
from tokenspeed.model.build import LanguageModel, declare_model
from tokenspeed.model.layers import ForwardStep, KvPages
from tokenspeed.model.loader import Progress
from tokenspeed.model.placement import OneRank

# torch has no types for these.
_cuda: Any = torch.cuda

DTYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32}
CAPABILITY_MIN = (8, 0)
# Besides the largest step: sizes of prompts whose first run compiles or loads something.
WARM_UP_TOKENS = (2, 17, 300)


class StepRunner:
    """Computes the steps of one rank; `load` builds it."""

    def __init__(
        self,
        model: LanguageModel,
        kernels: Selector,
        page: PageShape,
        config: ExecutorConfig,
        vocab: int,
        stream: torch.cuda.Stream,
    ) -> None:
        """Reserve slots and buffers, and the padding's page alone; `take_pages` brings the others."""
        self.stream = stream
        self._model = model
        self._apply, self._choose = apply(kernels), choose(kernels)
        self._adjust, self._logprobs = adjust(kernels), logprobs(kernels)
        self._page, self._vocab = page, vocab
        self._device = config.device
        self._length, self._tokens_max = config.model.max_model_len, config.chunked_prefill_size
        rows = config.max_num_seqs
        # A slot is free again only with the result of the last step that named it: twice as many as
        # run at once, so that no admission waits for that.
        self.tables = PageTables(1 + 2 * rows, self._length, page.page_tokens)
        slots, width = self.tables.slots, self.tables.pages_max
        self._asks = SlotAsks(slots)
        self._settings = SlotSettings.allocate(slots, self._device)
        self._edits = SlotEdits.allocate(slots, self._length, self._device, rows, vocab)
        self._page_table = torch.zeros(slots, width, dtype=torch.int32, device=self._device)
        self._last_id = torch.zeros(slots, dtype=torch.int32, device=self._device)
        tail = tail_words_max(self.tables)
        self._narrow = Upload(rows, rows, tail, self._device)
        self._wide = Upload(rows + self._tokens_max, rows, tail, self._device)
        self.download = Download(rows, self._device)
        self._sizes = buckets(rows)
        self._graphs: DecodeGraphs | None = None
        self.take_pages(1)

    @classmethod
    def load(cls, config: ExecutorConfig, progress: Progress) -> StepRunner:
        """Read the model, measure its largest step, reserve pages and capture; raises `StartError`."""
        kernels = _kernels(config)
        torch.backends.cuda.matmul.allow_tf32 = False
        progress("read the checkpoint", 0.0)
        model, stream = config.model, _cuda.Stream()
        with torch.inference_mode(), torch.cuda.stream(stream):
            dtype = DTYPES[model.dtype]
            dummy = model.load_format == "dummy"
            declared = declare_model(
                model.path,
                model.max_model_len,
                dtype,
                kernels,
                OneRank(),
                config.device,
                dummy=dummy,
                overrides=model.hf_overrides,
            )
            check_weights_fit(declared.weights_bytes, config.gpu_memory_utilization)
            shape = declared.shape
            page = PageShape(shape.layers, config.page_tokens, declared.kv_heads, shape.head_dim, declared.dtype)
            runner = cls(declared.load(progress), kernels, page, config, shape.vocab, stream)
            runner.take_pages(page_count(config, page, runner._warm_up(progress)))
            if not config.enforce_eager:
                runner._graphs = DecodeGraphs(runner._sizes, runner._decode, runner._decode_tail, progress)
            stream.synchronize()
        return runner

    @property
    def pages(self) -> list[KvPages]:
        """The KV cache, layer by layer."""
        assert self._pages is not None
        return self._pages.layers

    def take_pages(self, pages_total: int) -> None:
        """Give the present pages back and reserve `pages_total`."""
        self._pages: PagePool | None = None
        self._pages = PagePool(self._page, pages_total, self._device)
        tables = self.tables
        self.limits = Limits(
            tables.slots, pages_total, tables.pages_max, self._page.page_tokens, self._length, self._vocab
        )

    @torch.inference_mode()
    def launch(self, plan: Plan, copy: int, clock: StepClock, step: int) -> tuple[Launched, Mark]:
        """Send `plan` up through host buffer `copy`, compute it, and mark the end behind what comes down.

        Raises `EngineError` for a plan larger than the buffers; nothing is written then.
        """
        rows, prompt_tokens = len(plan.slots), int(plan.tokens[plan.tokens > 1].sum())
        if rows > self._sizes[-1] or prompt_tokens > self._tokens_max:
            raise EngineError(
                f"The plan has {rows} rows with {prompt_tokens} tokens of prompts; at most {self._sizes[-1]} rows and "
                f"{self._tokens_max} tokens are run.",
                code="bad_plan",
            )
        plan.apply(self.tables)
        for opening in plan.openings:
            self._asks.open(opening)
        shape = shape_of(plan, self.tables, self._sizes, self._asks, self._length)
        upload = self._narrow if shape.plain else self._wide
        words = write_step(plan, self.tables, shape, upload.host[copy])
        with torch.cuda.stream(self.stream):
            mark = clock.begin()
            # What an opening brings in lists goes by itself, in front of the step; few requests do.
            for opening in plan.openings:
                self._edits.open(opening)
            upload.send(copy, words)
            clock.uploaded(step)
            launched = self._run(plan, shape, copy)
            clock.end(mark, step)
        return launched, mark

    def _run(self, plan: Plan, shape: StepShape, copy: int) -> Launched:
        none: Ints = np.zeros(0, np.int64)
        if not shape.tokens:
            self._prologue(self._wide.device, 0)
            return Launched(none, none, None)
        if shape.plain:
            chosen, entries = self._plain(shape.bucket, shape.full), None
        else:
            chosen, entries = self._mixed(shape)
        tops = self._asks.logprobs[plan.slots[plan.sample]]
        told = None if chosen.entries is None or (tops < 0).all() else chosen.entries[: shape.samples]
        self.download.fetch(copy, chosen.ids[: shape.samples], told)
        if shape.scored is None or entries is None:
            return Launched(tops, none, None)
        return Launched(tops, shape.scored.tops, shape.scored.fetch(entries))

    def _plain(self, bucket: int, full: bool) -> Chosen:
        if self._graphs is not None:
            return self._graphs.replay(bucket, full)
        step = self._decode(bucket)
        return self._decode_tail(bucket, step.logits) if full else Chosen(step.ids)

    def _decode(self, bucket: int) -> Step:
        """Compute a step of `bucket` rows of one token, all sampled: what a graph holds."""
        staged = self._narrow.device
        rows = SlotRows(DecodeRows(staged.slots[:bucket], staged.positions[:bucket], self._page_table), None)
        logits = self._model.logits(self._hidden(staged, bucket, rows, None))
        slots, positions = staged.slots[:bucket], staged.sample_positions[:bucket]
        return Step(logits, self._choose(logits, self._settings, slots, positions, self._last_id))

    def _decode_tail(self, bucket: int, logits: torch.Tensor) -> Chosen:
        """Choose again of the logits of `_decode`, as all settings say."""
        staged = self._narrow.device
        return self._tail(logits, staged.slots[:bucket], staged.sample_positions[:bucket])

    def _tail(self, logits: torch.Tensor, slots: torch.Tensor, positions: torch.Tensor) -> Chosen:
        settings, edits = self._settings, self._edits
        adjusted = Adjusted(self._adjust(logits, settings.edits, edits, slots, positions), edits.history)
        ids = self._choose(logits, settings, slots, positions, self._last_id, adjusted)
        return Chosen(ids, self._logprobs(logits, ids, slots, settings.logprobs))

    def _mixed(self, shape: StepShape) -> tuple[Chosen, torch.Tensor | None]:
        """Compute any step, and the entries of the tokens that are scored.

        Only its sizes are read from `shape`, the extend rows and the tokens to score.
        """
        staged, bucket, scored = self._wide.device, shape.bucket, shape.scored
        decode = DecodeRows(staged.slots[:bucket], staged.positions[:bucket], self._page_table) if bucket else None
        extend = ExtendRows(shape.counts, shape.contexts, shape.table) if len(shape.counts) else None
        # A step that samples nothing samples padding, whose id nobody fetches.
        samples = bucket_of(self._sizes, max(1, shape.samples))
        outputs, sent = staged.sample_tokens[:samples], None
        if scored is not None:
            sent = scored.send(self._device)
            outputs = torch.cat((outputs, sent[0]))
        hidden = self._hidden(staged, shape.tokens, SlotRows(decode, extend), outputs)
        chosen = self._sample(hidden[:samples], samples, shape.full)
        return chosen, None if sent is None else self._scores(hidden[samples:], sent)

    def _sample(self, hidden: torch.Tensor, samples: int, full: bool) -> Chosen:
        staged, logits = self._wide.device, self._model.logits(hidden)
        slots, positions = staged.sample_slots[:samples], staged.sample_positions[:samples]
        if full:
            return self._tail(logits, slots, positions)
        return Chosen(self._choose(logits, self._settings, slots, positions, self._last_id))

    def _scores(self, hidden: torch.Tensor, sent: torch.Tensor) -> torch.Tensor:
        """Return the entries of tokens of prompts, int32 [tokens, words], from their hidden states, slice by slice."""
        _, slots, places = sent
        ids = self._edits.history.view(-1).index_select(0, places)
        slices = zip(*(torch.split(whole, SLICE_ROWS) for whole in (hidden, ids, slots)), strict=True)
        tops = self._settings.prompt_logprobs
        return torch.cat([self._logprobs(self._model.logits(part), id_, slot, tops) for part, id_, slot in slices])

    def _hidden(self, staged: Sections, tokens: int, rows: SlotRows, outputs: torch.Tensor | None) -> torch.Tensor:
        self._prologue(staged, tokens)
        step = ForwardStep(staged.ids[:tokens], staged.positions[:tokens], staged.places[:tokens], rows, outputs)
        return self._model(step, self.pages)

    def _prologue(self, staged: Sections, tokens: int) -> None:
        ids, slots = staged.ids[:tokens], staged.slots[:tokens]
        self._apply(staged.whole, ids, slots, self._settings, self._page_table, self._last_id)

    def _warm_up(self, progress: Progress) -> int:
        """Run what compiles or loads something, and return the bytes that the largest steps take."""
        most, rows, page_tokens = self._tokens_max, self._sizes[-1], self._page.page_tokens
        for done, tokens in enumerate(size for size in WARM_UP_TOKENS if size < most):
            progress("warm up", done / (len(WARM_UP_TOKENS) + 2))
            self._mixed(_padding(tokens, 0, 1, page_tokens))
        progress("warm up", 0.6)
        largest = replace(_padding(most, rows, rows, page_tokens), full=True, scored=padding(most))
        mixed = measured_peak(lambda: self._mixed(largest))
        progress("warm up", 0.8)
        return mixed + measured_peak(lambda: self._decode_tail(rows, self._decode(rows).logits))


def _padding(tokens: int, rows: int, samples: int, page_tokens: int) -> StepShape:
    """Return a step of padding: one prompt of `tokens` tokens and `rows` rows of one, all in page 0."""
    table = np.zeros((1, -(-tokens // page_tokens)), np.int32)
    return StepShape(rows, rows, samples, np.array([tokens], np.int32), np.zeros(1, np.int32), table)


def _kernels(config: ExecutorConfig) -> Selector:
    if not torch.cuda.is_available():
        raise StartError("The device is cuda, and torch finds none. Serve with --device cpu, or look at nvidia-smi.")
    capability = torch.cuda.get_device_capability()
    if capability < CAPABILITY_MIN:
        raise StartError(
            f"{torch.cuda.get_device_name()} has compute capability {capability[0]}.{capability[1]}; "
            f"{CAPABILITY_MIN[0]}.{CAPABILITY_MIN[1]} or above is needed."
        )
    if config.model.dtype not in DTYPES:
        raise StartError(f"The dtype is {config.model.dtype}; {', '.join(DTYPES)} are supported on {config.device}.")
    if config.ranks != 1:
        raise StartError(f"{config.ranks} ranks are wanted; one GPU is supported.")
    return selector("cuda", config=parse_overrides(config.kernels), capability=capability)
