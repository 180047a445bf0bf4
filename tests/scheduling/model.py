"""A naive second implementation to check the scheduler against.

Everything is recomputed from token lists and sets: what a page holds is the whole prefix that was
computed into it, who owns a page is a set, a hit is the longest list of whole pages that is known.
It plays the executor as well. It does not predict what is planned, it judges it.

Invariant: `problem` is raised for any plan or outcome that a correct scheduler could not give.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import groupby

from tokenspeed.messages.base import pack_ids, unpack_ids
from tokenspeed.messages.executor import ROW_DECODE, ROW_SAMPLE, ROW_SCORE
from tokenspeed.messages.scheduler import ROW_FAILED
from tokenspeed.scheduling.scheduler import CoreConfig, NeverFitsError, Plan, Scheduler

VOCABULARY = 5
Prefix = tuple[object, ...]


@dataclass
class Request:
    """What is known of a request; `tokens` are prompt and accepted output."""

    tokens: list[int]
    prompt: int
    max_tokens: int
    end_ids: tuple[int, ...]
    namespace: bytes
    score: bool = False
    live: bool = True
    slot: int = 0
    stale: bool = False  # resident at a flush: publishes nothing
    first_hit: int | None = None

    @property
    def outputs(self) -> int:
        return len(self.tokens) - self.prompt

    @property
    def scores(self) -> bool:
        """Whether the tokens of its rows are to be scored."""
        return self.score and not self.outputs


@dataclass
class Slot:
    """What the device knows of a slot."""

    request: int
    tokens: list[int]
    namespace: Prefix
    computed: int
    table: dict[tuple[int, int], int] = field(default_factory=dict)
    doomed: bool = False


@dataclass
class Row:
    """A row in flight; `end` counts the tokens with KV after a prefill row."""

    request: int
    decode: bool
    ids_max: int
    end: int
    ids: list[int]
    failed: bool = False


@dataclass
class Flight:
    """A step in flight; `pages` says which request names a page."""

    step: int
    fails: bool
    rows: list[Row] = field(default_factory=list)
    pages: dict[tuple[int, int], int] = field(default_factory=dict)


class Model:
    """The core, driven and judged. `ample`: no page is ever evicted, so hits must be the longest."""

    def __init__(self, config: CoreConfig, *, ample: bool = False) -> None:
        self.config = config
        self.core = Scheduler(config, record=True)
        self.requests: dict[int, Request] = {}
        self.slots: dict[int, Slot] = {}
        self.flights: list[Flight] = []
        self.contents: dict[tuple[int, int, int], Prefix] = {}  # (group, page, offset) -> prefix
        self.published: set[Prefix] = set()
        self.tombstones: set[int] = set()
        self.ample = ample
        self.now_us = 0
        self.computed_tokens = 0

    # Events.

    def submit(
        self,
        request: int,
        prompt: list[int],
        max_tokens: int,
        *,
        end_ids: tuple[int, ...] = (),
        resume: list[int] | None = None,
        namespace: bytes = bytes(16),
        session: int = 0,
        priority: int = 0,
        score: bool = False,
    ) -> bool:
        """Submit and return whether the request is in."""
        if request in self.requests and (self.requests[request].live or self._named(request)):
            return False
        self.now_us += 10
        resumed = resume or []
        try:
            taken = self.core.submit(
                self.now_us,
                request,
                pack_ids(prompt),
                resume=pack_ids(resumed),
                max_tokens=max_tokens,
                end_ids=end_ids,
                namespace=namespace,
                session=session,
                priority=priority,
                score=score,
            )
        except NeverFitsError:
            total = len(prompt) + max_tokens
            pages = -(-total // self.config.page_tokens)
            problem(
                total <= self.config.max_model_len and all(pages < total for total in self.config.pages_total),
                f"request {request} was refused though it fits",
            )
            return False
        problem(taken == (request in self.tombstones), f"request {request}: tombstone and answer differ")
        self.tombstones.discard(request)
        if taken:
            self.requests[request] = Request(prompt + resumed, len(prompt), max_tokens, end_ids, namespace, score)
        return taken

    def cancel(self, request: int) -> None:
        known = self.requests.get(request)
        live = known is not None and known.live
        if not live and not self._named(request):
            self.tombstones.add(request)
        problem(self.core.cancel(self.now_us, request) != live, f"cancel of {request} gave {not live}")
        if known is not None:
            known.live = False

    def verdict(self, request: int) -> None:
        known = self.requests.get(request)
        live = known is not None and known.live
        kept = known.outputs if known is not None else 0
        problem(self.core.verdict(self.now_us, request, kept) != live, f"verdict of {request} gave {not live}")
        if known is not None:
            known.live = False

    def flush(self) -> None:
        self.core.flush(self.now_us)
        self.published.clear()
        for request in self.requests.values():
            request.stale = True

    def executor_lost(self) -> None:
        self.core.executor_lost(self.now_us)
        self.flights.clear()
        self.slots.clear()
        self.contents.clear()
        self.published.clear()

    def plan(self, *, fails: bool = False, row_fails: bool = False) -> Plan | None:
        """Plan a step, judge it, and compute it (its result is told later).

        With `row_fails` its last row fails alone, if it is sampled.
        """
        self.now_us += 10
        plan = self.core.plan(self.now_us)
        if plan is None:
            return None
        problem(len(self.flights) > self.config.overlap, "too many steps in flight")
        flight = Flight(plan.step, fails)
        for slot, request in plan.openings:
            self._open(slot, request)
        for slot, group, index, page in quads(plan.pages):
            problem(not 0 < page < self.config.pages_total[group], f"page {page} is out of range")
            self.slots[slot].table[group, index] = page
        self._rows(plan, flight)
        last = flight.rows[-1]
        last.failed = row_fails and not fails and last.ids_max > 0
        self.flights.append(flight)
        return plan

    def result(self) -> None:
        """Tell the result, or the failure, of the oldest step in flight and judge the outcomes."""
        self.now_us += 10
        flight = self.flights.pop(0)
        if flight.fails:
            expected = [row.request for row in flight.rows if self.requests[row.request].live]
            problem(self.core.step_failed(self.now_us, flight.step) != expected, "step_failed ended others")
            for row in flight.rows:
                self.requests[row.request].live = False
            return
        sampled = [row for row in flight.rows if row.ids_max]
        counts = pack_ids(ROW_FAILED if row.failed else len(row.ids) for row in sampled)
        ids = pack_ids(token for row in sampled for token in row.ids if not row.failed)
        found = [
            (outcome.request, outcome.first, unpack_ids(outcome.ids), outcome.finish)
            for outcome in self.core.result(self.now_us, flight.step, 10, counts, ids)
        ]
        wanted = [out for row in flight.rows if (out := self._accept(row)) is not None]
        problem(found != wanted, f"outcomes are {found}, expected {wanted}")

    def drain(self) -> None:
        """Answer everything; all requests must come to their end and all pages back."""
        for _ in range(20_000):
            if self.plan() is not None:
                continue
            if not self.flights:
                break
            self.result()
            self.audit()
        problem(bool(self.flights), "no end: livelock")
        problem(any(request.live for request in self.requests.values()), "nothing to do, yet requests are open")
        stats = self.core.stats()
        problem(stats.pages_free + stats.pages_cached_idle != stats.pages_total, f"pages are left over: {stats}")
        problem(stats.slots_free != self.config.slots, f"slots are left over: {stats}")

    def audit(self) -> None:
        """Let the core check itself and compare the sums."""
        self.core.check()
        stats = self.core.stats()
        classes = (
            stats.pages_free,
            stats.pages_owned,
            stats.pages_cached_idle,
            stats.pages_cached_leased,
            stats.pages_zombie,
        )
        problem(sum(classes) != stats.pages_total, f"the page classes do not sum to the total: {stats}")

    # Judging a plan.

    def _open(self, slot: int, number: int) -> None:
        request = self.requests[number]
        problem(not request.live, f"slot {slot} is opened for request {number}, which is over")
        holder = self.slots.get(slot)
        if holder is not None:
            pinned = any(row.request == holder.request for flight in self.flights for row in flight.rows)
            taken = self.requests[holder.request]
            problem(taken.slot == slot and pinned, f"slot {slot} was given away while a step names it")
        self.slots = {key: value for key, value in self.slots.items() if value.request != number}
        self.slots[slot] = Slot(number, list(request.tokens), (request.namespace,), -1)
        request.slot = slot
        request.stale = False

    def _rows(self, plan: Plan, flight: Flight) -> None:
        ids = unpack_ids(plan.ids)
        rows = list(quads(plan.rows))
        budget = self.config.step_tokens
        if any(flags & ROW_DECODE for *_, flags in rows):
            budget = self.config.step_tokens_mixed
        problem(len(ids) > budget, f"{len(ids)} prefill tokens, allowed are {budget}")
        problem(len({row[0] for row in rows}) != len(rows), "two rows of one slot")
        for slot, tokens, context, flags in rows:
            holder = self.slots[slot]
            problem(not self.requests[holder.request].live, f"a row of request {holder.request}, which is over")
            if flags & ROW_DECODE:
                self._judge_decode(holder, tokens, context)
            else:
                self._judge_prefill(holder, tokens, context, flags, ids[:tokens])
                del ids[:tokens]
            self._claim_pages(holder, tokens, context, flight)
            self._compute(holder, tokens, flags, flight)
        problem(bool(ids), "ids are left over")

    def _judge_decode(self, slot: Slot, tokens: int, context: int) -> None:
        request = self.requests[slot.request]
        pending = self._pending(slot.request)
        problem(context != len(request.tokens) - 1 + pending, f"context {context} of request {slot.request}")
        problem(request.outputs + pending + tokens > request.max_tokens, "a row past the limit")
        problem(tokens > self.config.width, "a row too wide")

    def _judge_prefill(self, slot: Slot, tokens: int, context: int, flags: int, ids: list[int]) -> None:
        request = self.requests[slot.request]
        if slot.computed < 0:
            slot.computed = context
            problem(request.scores and context > 0, "tokens to be scored came from the cache")
            self._judge_hit(slot, context)
        problem(context != slot.computed, "a chunk does not begin where the last one ended")
        problem(ids != request.tokens[context : context + tokens], "a chunk has the wrong ids")
        last = context + tokens == len(request.tokens)
        problem(bool(flags & ROW_SAMPLE) != last, "the sample flag is wrong")
        problem(bool(flags & ROW_SCORE) != request.scores, "the score flag is wrong")
        self.computed_tokens += tokens

    def _judge_hit(self, slot: Slot, hit: int) -> None:
        request = self.requests[slot.request]
        if request.first_hit is None:
            request.first_hit = hit
            problem(self.core.cached_tokens(slot.request) != hit, "cached_tokens is wrong")
        if not self.ample or request.scores:
            return
        page = self.config.page_tokens
        longest = 0
        while longest + page < len(request.tokens):
            if (request.namespace, *request.tokens[: longest + page]) not in self.published:
                break
            longest += page
        problem(hit != longest, f"request {slot.request} hit {hit} tokens, {longest} are known")

    def _claim_pages(self, slot: Slot, tokens: int, context: int, flight: Flight) -> None:
        page_tokens = self.config.page_tokens
        for group in range(len(self.config.pages_total)):
            for index in range(self._first_page(group, slot.computed), -(-(context + tokens) // page_tokens)):
                problem((group, index) not in slot.table, f"request {slot.request} lacks page {index}")
                page = (group, slot.table[group, index])
                if index >= slot.computed // page_tokens:
                    self._judge_written(slot, page)
                flight.pages[page] = slot.request

    def _judge_written(self, slot: Slot, page: tuple[int, int]) -> None:
        """A page that is written belongs to one request, and no step of another one names it."""
        for flight in self.flights:
            problem(flight.pages.get(page, slot.request) != slot.request, f"page {page} is in use by a step")
        for number, other in self.slots.items():
            if other is slot or not self.requests[other.request].live or self.requests[other.request].slot != number:
                continue
            if self.core.state(other.request) not in ("Prefilling", "PrefillDone", "Decoding"):
                continue
            group, wanted = page
            first = self._first_page(group, max(other.computed, 0))
            shared = any(key[0] == group and key[1] >= first and value == wanted for key, value in other.table.items())
            problem(shared, f"page {page} of request {other.request} is written by {slot.request}")

    def _first_page(self, group: int, position: int) -> int:
        window = self.config.windows[group]
        return 0 if window == 0 else max(0, position - window) // self.config.page_tokens

    def _pending(self, request: int) -> int:
        return sum(row.ids_max for flight in self.flights for row in flight.rows if row.request == request)

    # Playing the executor.

    def _compute(self, slot: Slot, tokens: int, flags: int, flight: Flight) -> None:
        decode, sampled = bool(flags & ROW_DECODE), bool(flags & ROW_SAMPLE)
        slot.doomed |= flight.fails
        begin = slot.computed
        if not slot.doomed:
            self._read(slot)
        accepted = tokens
        if decode:
            accepted = 1 + self._draw(slot, begin + 1) % tokens
        ids = []
        for position in range(begin, begin + tokens):
            good = position < begin + accepted and not flight.fails
            draws = sampled and (position < begin + accepted if decode else position == begin + tokens - 1)
            for group in range(len(self.config.pages_total)):
                cell = self._cell(slot, group, position)
                self.contents[cell] = (*slot.namespace, *slot.tokens[: position + 1]) if good else ()
            if draws:
                ids.append(self._draw(slot, position + 1))
                slot.tokens.append(ids[-1])
        slot.computed += accepted
        ids_max = (tokens if decode else 1) if sampled else 0
        flight.rows.append(Row(slot.request, decode, ids_max, begin + tokens, ids))

    def _read(self, slot: Slot) -> None:
        for group in range(len(self.config.pages_total)):
            first = 0 if self.config.windows[group] == 0 else max(0, slot.computed - self.config.windows[group])
            for position in range(first, slot.computed):
                seen = self.contents.get(self._cell(slot, group, position))
                wanted = (*slot.namespace, *slot.tokens[: position + 1])
                problem(seen != wanted, f"request {slot.request} reads {seen} at {position}, not {wanted}")

    def _cell(self, slot: Slot, group: int, position: int) -> tuple[int, int, int]:
        page, offset = divmod(position, self.config.page_tokens)
        problem((group, page) not in slot.table, f"request {slot.request} has no page {page} in group {group}")
        return group, slot.table[group, page], offset

    @staticmethod
    def _draw(slot: Slot, length: int) -> int:
        """Return a token that depends on the whole prefix alone."""
        state = 17
        for token in slot.tokens[:length]:
            state = (state * 31 + token + 1) % 65_521
        return state % VOCABULARY

    def _accept(self, row: Row) -> tuple[int, int, list[int], str] | None:
        request = self.requests[row.request]
        if not request.live:
            return None
        first, finish = request.outputs, ""
        taken: list[int] = []
        if row.failed:
            request.live = False
            return (row.request, first, taken, "failed")
        if row.ids_max and not request.max_tokens:
            finish = "length"
        for token in row.ids if request.max_tokens else []:
            taken.append(token)
            if token in request.end_ids:
                finish = "stop"
            elif first + len(taken) == request.max_tokens:
                finish = "length"
            if finish:
                break
        request.tokens += taken
        self._publish(request, len(request.tokens) - 1 if row.decode else row.end)
        request.live = not finish
        return (row.request, first, taken, finish) if row.ids_max else None

    def _publish(self, request: Request, computed: int) -> None:
        holder = self.slots.get(request.slot)
        resident = holder is not None and self.requests[holder.request] is request
        if request.stale or not resident or not self.config.prefix_caching:
            return
        page = self.config.page_tokens
        for end in range(page, computed + 1, page):
            self.published.add((request.namespace, *request.tokens[:end]))

    def _named(self, request: int) -> bool:
        return any(row.request == request for flight in self.flights for row in flight.rows)


def problem(seen: bool, what: str) -> None:
    """Raise if something is wrong."""
    if seen:
        raise AssertionError(what)


def quads(data: bytes) -> list[tuple[int, int, int, int]]:
    """Return int32 bytes as tuples of four."""
    ints = iter(unpack_ids(data))
    return list(zip(ints, ints, ints, ints, strict=True))


def tokens_of(text: str) -> list[int]:
    """Return `3x5 1..4 9` as [5, 5, 5, 1, 2, 3, 4, 9]: for tests that spell prompts out."""
    tokens: list[int] = []
    for word in text.split():
        if ".." in word:
            first, last = word.split("..")
            tokens += range(int(first), int(last) + 1)
        elif "x" in word:
            count, token = word.split("x")
            tokens += [int(token)] * int(count)
        else:
            tokens.append(int(word))
    return tokens


def tokens_text(tokens: list[int]) -> str:
    """Return what `tokens_of` reads."""
    words = []
    for _, run in groupby(enumerate(tokens), key=lambda item: item[1] - item[0]):
        values = [token for _, token in run]
        words.append(str(values[0]) if len(values) == 1 else f"{values[0]}..{values[-1]}")
    return " ".join(words)
