"""Steps of a small random Llama: every way to cut the work gives transformers' greedy ids."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest

from tests.ipc.helpers import open_descriptors, readable
from tests.llamas import SIZES, Driver, executor_config, load, outcomes, random_llama, save_folder
from tests.reference import Reference, assert_equal_tokens
from tokenspeed.errors import StartError
from tokenspeed.executor.executor import load_executor
from tokenspeed.ipc.trace import NOWHERE
from tokenspeed.messages.base import pack_ids, unpack_ids
from tokenspeed.messages.executor import ROW_DECODE, ROW_SAMPLE, StepPlan

NUMBERS = np.random.default_rng(3)
PROMPTS = [NUMBERS.integers(0, SIZES["vocab_size"], size).tolist() for size in (5, 16, 33, 100)]
COUNT = 24


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random checkpoint."""
    return save_folder(random_llama(), tmp_path_factory.mktemp("llama") / "checkpoint")


@pytest.fixture(scope="module")
def wanted(folder: Path) -> list[list[int]]:
    """The greedy ids of transformers behind each prompt."""
    reference = Reference(folder)
    return [reference.greedy(prompt, COUNT).ids for prompt in PROMPTS]


@pytest.fixture
def driver(folder: Path) -> Iterator[Driver]:
    """A fresh executor to plan for."""
    executor = load(folder)
    yield Driver(executor)
    executor.close()


def test_what_it_reports(driver: Driver) -> None:
    """The facts for the scheduler: pages from the bytes, slots for twice the running requests."""
    page_bytes = 2 * 3 * 16 * 2 * 12 * 4
    assert driver.executor.pages_total == ((8 << 20) // page_bytes,)
    assert (driver.executor.page_tokens, driver.executor.slots, driver.executor.vocab_tokens) == (16, 17, 259)


@pytest.mark.parametrize("chunk", [1, 16, 23, 200])
def test_alone(driver: Driver, wanted: list[list[int]], chunk: int) -> None:
    """One request after the other through one slot, prefilled in chunks: no old state shows."""
    assert [driver.generate(1, prompt, COUNT, chunk) for prompt in PROMPTS] == wanted


def test_mixed_steps(driver: Driver, wanted: list[list[int]]) -> None:
    """Requests start one after the other while the others decode; chunks and decode rows share steps."""
    outputs: list[list[int]] = [[] for _ in PROMPTS]
    done = [0] * len(PROMPTS)
    for step in range(80):
        rows: list[tuple[int, list[int] | None, int, bool]] = []
        for number, prompt in enumerate(PROMPTS):
            if step == number * 3:
                driver.open(number + 2)
            if step < number * 3 or len(outputs[number]) == COUNT:
                continue
            left = prompt[done[number] :][:13]
            rows.append((number + 2, left or None, done[number], done[number] + len(left) >= len(prompt)))
        # Not always in the same order, as a scheduler may do.
        rows = rows[step % len(rows) :] + rows[: step % len(rows)] if rows else rows
        ids = iter(driver.run(*rows))
        for slot, left, _, sampled in rows:
            done[slot - 2] += len(left or [0])
            if sampled:
                outputs[slot - 2].append(next(ids))
    assert outputs == wanted


def test_a_cached_prefix_is_read(driver: Driver, wanted: list[list[int]]) -> None:
    """A slot that is given another's full pages goes on behind them."""
    prompt = PROMPTS[2]
    driver.generate(1, prompt, 1)
    driver.open(5, pages=driver.pages(1)[:2])
    ids = driver.run((5, prompt[32:], 32, True))
    ids += [driver.run((5, None, 33 + done, True))[0] for done in range(COUNT - 1)]
    assert ids == wanted[2]


def test_sampled_ids_do_not_depend_on_company(driver: Driver) -> None:
    """The same seed draws the same ids alone, beside others, and in another slot after a restart midway."""
    settings: dict[str, Any] = {"temperature": 1.0, "top_p": 0.95, "seed": 2**63 + 17}
    alone = driver.generate(1, PROMPTS[0], COUNT, **settings)
    assert driver.generate(2, PROMPTS[0], COUNT, **{**settings, "seed": 18}) != alone

    driver.open(3, **settings)
    driver.open(4, temperature=3.0, seed=5)
    ids = [driver.run((4, PROMPTS[1], 0, True), (3, PROMPTS[0], 0, True))[1]]
    ids += [driver.run((4, None, 16 + done, True), (3, None, 5 + done, True))[1] for done in range(9)]
    assert ids == alone[:10]

    # Retracted: prompt and output so far come again as a prompt.
    driver.open(6, **settings)
    ids += driver.run((6, PROMPTS[0] + ids, 0, True))
    ids += [driver.run((6, None, 15 + done, True))[0] for done in range(COUNT - 11)]
    assert ids == alone


def test_suppressed_ids_are_not_drawn_before_their_time(driver: Driver, wanted: list[list[int]]) -> None:
    """The ids that greedy would take are left out below a position, and come back at it."""
    prompt, banned = PROMPTS[1], wanted[1][:1]
    ids = driver.generate(1, prompt, 4, suppress_until=len(prompt) + 1, suppress=pack_ids(banned))
    assert ids[0] != wanted[1][0]
    assert driver.generate(1, prompt, COUNT, suppress_until=len(prompt), suppress=pack_ids(banned)) == wanted[1]
    drawn = driver.generate(
        2, prompt, 8, temperature=1.0, top_k=1, suppress_until=len(prompt) + 1, suppress=pack_ids(banned)
    )
    assert drawn[0] == ids[0]


def test_a_plan_without_rows(driver: Driver) -> None:
    """Openings alone are a plan too."""
    driver.open(1)
    assert driver.run() == []


def test_unsampled_rows_give_no_ids(driver: Driver, wanted: list[list[int]]) -> None:
    """Of three rows two are sampled: two ids, in row order."""
    for slot in (1, 2, 3):
        driver.open(slot)
    assert driver.run((3, PROMPTS[1], 0, True), (1, PROMPTS[2][:9], 0, False), (2, PROMPTS[0], 0, True)) == [
        wanted[1][0],
        wanted[0][0],
    ]


def decode_plan(step: int, context: int) -> StepPlan:
    """Return a plan that decodes slot 1; its page is there."""
    return StepPlan(step, [], b"", pack_ids([1, 1, context, ROW_SAMPLE | ROW_DECODE]), b"")


def refused_plan(step: int) -> StepPlan:
    """Return a plan of a slot that has no page."""
    return StepPlan(step, [], b"", pack_ids([7, 1, 0, ROW_SAMPLE]), pack_ids([1]))


def test_plans_submitted_at_once_are_answered_in_order(driver: Driver, wanted: list[list[int]]) -> None:
    """Each decodes what the one before it has drawn; one that cannot be run fails in its turn and changes nothing."""
    executor = driver.executor
    ids = driver.generate(1, PROMPTS[0], 1)
    for plan in (decode_plan(10, 5), decode_plan(11, 6), refused_plan(12), decode_plan(13, 7)):
        executor.submit(plan)
    seen = outcomes(executor, 4)
    assert [outcome.step for outcome in seen] == [10, 11, 12, 13]
    assert "slot 7 has no page" in seen[2].failure
    assert (seen[2].counts, seen[2].ids) == (b"", b"")
    good = [outcome for outcome in seen if not outcome.failure]
    assert ids + [token for outcome in good for token in unpack_ids(outcome.ids)] == wanted[0][:4]
    assert all(outcome.step_us > 0 for outcome in good)
    assert executor.collect() == []
    assert not readable(executor.fileno())


def test_a_plan_is_read_before_submit_returns(driver: Driver, wanted: list[list[int]]) -> None:
    """Its bytes lie in a ring, which shows other bytes afterwards."""
    ids = driver.generate(1, PROMPTS[0], 1, suppress_until=99, suppress=pack_ids(wanted[0][:1]))
    [plan] = driver.plans
    [opening] = plan.openings
    fields = (opening.suppress, plan.pages, plan.rows, plan.ids)
    records = [bytearray(field) for field in fields]
    views: list[Any] = [memoryview(record) for record in records]
    opening = msgspec.structs.replace(opening, suppress=views[0])
    driver.executor.submit(StepPlan(2, [opening], *views[1:]))
    for view, record in zip(views, records, strict=True):
        view.release()  # fails while something still looks at it
        record[:] = b"\xdb" * len(record)
    [outcome] = outcomes(driver.executor, 1)
    assert outcome.failure == ""
    assert unpack_ids(outcome.ids) == ids != wanted[0][:1]


def test_forgotten_plans_have_no_outcome(driver: Driver, wanted: list[list[int]]) -> None:
    """Those in hand, done and waiting; what is submitted afterwards opens its slots anew."""
    driver.generate(1, PROMPTS[0], 1)
    for step in range(8):
        driver.executor.submit(decode_plan(step, 5 + step))
    assert readable(driver.executor.fileno(), 10.0)
    driver.executor.forget()
    assert driver.generate(1, PROMPTS[1], COUNT) == wanted[1]
    assert driver.executor.collect() == []


def test_close_with_plans_outstanding(folder: Path) -> None:
    """It waits for the step in hand and leaves no descriptor behind."""
    before = open_descriptors()
    executor = load(folder)
    Driver(executor).generate(1, PROMPTS[0], 1)
    for step in range(8):
        executor.submit(decode_plan(step, 5 + step))
    executor.close()
    assert open_descriptors() == before


def test_the_device_decides_who_computes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The executor of another device is imported only when it is asked for."""
    asked: list[object] = []

    def load_it(*settings: object) -> object:
        asked.extend(settings)
        return settings

    parts = SimpleNamespace(CudaExecutor=SimpleNamespace(load=load_it))
    monkeypatch.setitem(sys.modules, "tokenspeed.executor.cuda.executor", parts)
    config = executor_config(folder, device="cuda")

    def progress(phase: str, share: float) -> None:
        """Hear nothing."""

    loaded: object = load_executor(config, progress, NOWHERE)
    assert loaded == (config, progress, NOWHERE)
    assert asked == [config, progress, NOWHERE]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"device": "tpu"}, "device is tpu; cpu and cuda are supported"),
        ({"kv_cache_bytes": 10_000}, "holds 0 tokens; 16 are needed"),
        ({"kernels": "attention"}, 'override "attention" is not of the form'),
        ({"kernels": "attention=flash"}, "asks for flash"),
        ({"ranks": 2}, "2 ranks need a rendezvous file"),
    ],
)
def test_refused_settings(folder: Path, changes: dict[str, object], words: str) -> None:
    """What cannot work is said before anything is loaded."""
    with pytest.raises(StartError) as caught:
        load(folder, **changes)
    assert words in caught.value.message


def test_refused_dtype(folder: Path) -> None:
    """Half precision is not computed on the CPU."""
    config = executor_config(folder)
    half = type(config.model)(path=str(folder), served_name="", dtype="bfloat16", max_model_len=64)
    with pytest.raises(StartError, match="dtype is bfloat16; int8, float32"):
        load_executor(type(config)(model=half), lambda phase, share: None)


def test_a_model_larger_than_memory(folder: Path) -> None:
    """Both numbers are in the text, and nothing was reserved."""
    with pytest.raises(StartError, match=r"needs [\d,]+ MiB of memory .* and [\d,]+ MiB are available") as caught:
        load(folder, kv_cache_bytes=1 << 50)
    assert caught.value.code == "out_of_memory"


def test_equal_tokens_is_not_blind(folder: Path, wanted: list[list[int]]) -> None:
    """The comparer accepts the reference itself and fails on one wrong id."""
    reference = Reference(folder)
    assert_equal_tokens(reference, zip(PROMPTS, wanted, strict=True))
    wrong = [*wanted[1][:7], (wanted[1][7] + 1) % 259, *wanted[1][8:]]
    with pytest.raises(AssertionError, match="prompt 0, output 7"):
        assert_equal_tokens(reference, [(PROMPTS[1], wrong)])


def test_a_context_shorter_than_a_page(folder: Path) -> None:
    """The warm-up, too, stays inside the context."""
    executor = load(folder, max_model_len=2)
    assert len(Driver(executor).generate(1, [5], 1, 16)) == 1
    executor.close()
