"""The suite's judgement on made-up lines, its file and command on made-up parts, and real parts in small."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenspeed_tools.bench_cpu import traffic
from tokenspeed_tools.bench_cpu.engines import Running
from tokenspeed_tools.bench_suite import command, registry
from tokenspeed_tools.bench_suite.anchors import Anchors
from tokenspeed_tools.bench_suite.book import Book, commit_of, versions
from tokenspeed_tools.bench_suite.compare import BETTER, FLOOR_PERCENT, NOISE, WORSE, change
from tokenspeed_tools.bench_suite.line import SCHEMA, Figure, Line, spread_percent
from tokenspeed_tools.bench_suite.part import Kind, Measure, Part, Sizes, Values, rate_of, time_of
from tokenspeed_tools.bench_suite.parts import demo, messages, plan, start
from tokenspeed_tools.bench_suite.runner import PartError, measured_alone, run
from tokenspeed_tools.bench_suite.table import number, table
from tokenspeed_tools.bench_suite.written import text

pytestmark = pytest.mark.long

TIME, RATE, RATIO = time_of("us", "hash"), rate_of("1/s", "hash"), Kind("x", "lower", "none")
SPEEDS = {"hash": 2.0, "copy": 8.0, "gemm": 100.0, "work": 50.0, "objects": 1.0, "wake": 20.0}


def line(speeds: list[float], figures: Mapping[str, tuple[Kind, list[float]]], **changes: Any) -> Line:
    """Return a line of the part "a" on a machine with these speeds, round by round."""
    made = {
        name: Figure(**kind._asdict(), median=sorted(values)[len(values) // 2], spread_percent=0.0, values=values)
        for name, (kind, values) in figures.items()
    }
    settings: dict[str, Any] = {
        "schema": SCHEMA,
        "part": "a",
        "date": "2026-01-01T00:00:00+00:00",
        "commit": "c0ffee",
        "dirty": False,
        "machine": "chip, 2 cores, 8 GiB",
        "kind": "chip, 2 cores",
        "load": 0.4,
        "versions": {"python": "3.11"},
        "sizes": {},
        "seconds": 1.0,
    }
    return Line(**settings | changes, anchors=dict.fromkeys(SPEEDS, speeds), figures=made)


def costs(speeds: list[float], work: list[float]) -> Line:
    """Return what a machine of these speeds takes for this much work: a time, and a rate."""
    times = [one / speed for one, speed in zip(work, speeds, strict=True)]
    return line(speeds, {"time": (TIME, times), "rate": (RATE, [1 / one for one in times])})


speeds_of_a_run = st.lists(st.floats(0.05, 20.0), min_size=3, max_size=3)
works = st.lists(st.floats(0.98, 1.02), min_size=3, max_size=3)


@given(speeds_of_a_run, speeds_of_a_run, works, works)
def test_another_speed_of_the_machine_is_no_change(
    speeds: list[float], speeds_then: list[float], work: list[float], work_then: list[float]
) -> None:
    now, then = costs(speeds, work), costs(speeds_then, work_then)
    for name in ("time", "rate"):
        found = change(now, then, name)
        assert found is not None
        assert found.verdict == NOISE
        assert abs(found.percent) < 7.0


@given(st.floats(0.05, 20.0), st.floats(0.8, 1.25), st.floats(1.3, 10.0), works)
def test_less_work_is_better_and_more_is_worse_on_a_machine_of_about_the_same_speed(
    speed: float, other: float, times: float, work: list[float]
) -> None:
    heavy, light = costs([speed] * 3, [one * times for one in work]), costs([speed * other] * 3, work)
    for name in ("time", "rate"):
        better, worse = change(light, heavy, name), change(heavy, light, name)
        assert better is not None
        assert worse is not None
        assert (better.verdict, worse.verdict) == (BETTER, WORSE)
        assert better.size_percent == pytest.approx(worse.size_percent)
        assert (better.percent < 0) == (name == "time")


@given(st.lists(st.floats(0.5, 2.0), min_size=2), st.lists(st.floats(0.5, 2.0), min_size=2))
def test_what_both_spreads_cover_is_noise(now: list[float], then: list[float]) -> None:
    found = change(line([1.0] * len(now), {"x": (RATIO, now)}), line([1.0] * len(then), {"x": (RATIO, then)}), "x")
    assert found is not None
    assert found.noise_percent == max(FLOOR_PERCENT, spread_percent(now) + spread_percent(then))
    assert (found.verdict == NOISE) == (found.size_percent <= found.noise_percent)


def test_the_more_the_machine_changed_the_larger_a_change_must_be() -> None:
    then = costs([1.0] * 3, [1.0] * 3)
    for speed, verdict in ((1.0, WORSE), (1.2, WORSE), (3.0, NOISE)):
        found = change(costs([speed] * 3, [1.5] * 3), then, "time")
        assert found is not None
        assert found.ratio == pytest.approx(1.5)
        assert found.verdict == verdict


def test_anchors_that_disagree_about_the_machine_are_noise() -> None:
    then = costs([1.0] * 3, [1.0] * 3)
    now = costs([1.0] * 3, [1.5] * 3)
    torn = msgspec.structs.replace(now, anchors={**now.anchors, "objects": [0.3] * 3})
    other = msgspec.structs.replace(now, anchors={**now.anchors, "copy": [0.3] * 3})
    for line_now, verdict in ((now, WORSE), (torn, NOISE), (other, WORSE)):
        found = change(line_now, then, "time")
        assert found is not None
        assert found.verdict == verdict


def test_one_round_of_five_may_be_stopped_by_others() -> None:
    assert spread_percent([1.0, 1.1, 1.0, 0.9, 30.0]) == pytest.approx(10.0)
    assert spread_percent([1.0, 1.0, 1.0, 3.0]) == pytest.approx(100.0)
    assert spread_percent([2.0]) == 0.0


def test_a_ratio_inside_a_round_takes_no_anchor() -> None:
    now, then = (line([speed] * 3, {"x": (RATIO, [0.25] * 3)}) for speed in (1.0, 4.0))
    found = change(now, then, "x")
    assert found is not None
    assert found.ratio == 1.0


def test_a_figure_that_is_new_or_means_something_else_is_not_compared() -> None:
    then = line([1.0], {"x": (TIME, [1.0])})
    assert change(line([1.0], {"y": (TIME, [1.0])}), then, "y") is None
    assert change(line([1.0], {"x": (TIME._replace(unit="ms"), [1.0])}), then, "x") is None


def test_the_table_tells_what_changed_and_against_what() -> None:
    then = costs([1.0] * 3, [1.0] * 3)
    now = costs([2.0] * 3, [3.0, 3.0, 3.3])
    shown = table(msgspec.structs.replace(now, commit="beef", dirty=True, versions={"python": "3.12"}), then)
    assert "commit beef with changes" in shown
    assert "before: commit c0ffee of 2026-01-01" in shown
    assert "the machine's speed against then: hash 2.00, copy 2.00" in shown
    assert "wake 2.00; python 3.11 then" in shown
    (time,) = (row.split() for row in shown.splitlines() if row.strip().startswith("time"))
    assert time == ["time", "us", "<", "1.5", "0%", "1", "+200.0%", "55%", "worse"]
    assert "no earlier line" in table(now, None)
    assert table(now, None).count("  new") == 2
    assert "DOUBT" not in shown
    assert "load 9 on 2 cores" in table(msgspec.structs.replace(now, load=9.0), None)


def test_numbers_are_short() -> None:
    assert [number(value) for value in (0.01234, 1.234, 99.96, 123.4, 519_388.0)] == [
        "0.0123",
        "1.23",
        "100",
        "123",
        "519,388",
    ]


def test_the_book_gives_the_last_line_that_can_be_compared(tmp_path: Path) -> None:
    path = tmp_path / "benchmarks/suite.jsonl"
    base = costs([1.0], [1.0])
    replace = msgspec.structs.replace
    for changes in (
        {"commit": "aaa1", "date": "2026-01-01"},
        {"commit": "bbb1", "date": "2026-01-02"},
        {"commit": "other part", "part": "b"},
        {"commit": "other machine", "kind": "chip, 64 cores"},
        {"commit": "other sizes", "sizes": {"steps": 1}},
        {"commit": "other schema", "schema": SCHEMA + 1},
    ):
        Book(path).add(replace(base, **changes))
    with path.open("a") as file:
        file.write('{"schema": 1, "part": "a", "da')
    Book(path).add(replace(base, commit="bbb2", date="2026-01-03"))
    book = Book(path)
    last = book.last(base)
    assert last is not None
    assert last.commit == "bbb2"
    older = book.last(base, "aaa")
    assert older is not None
    assert older.commit == "aaa1"
    assert book.last(base, "ddd") is None
    assert Book(tmp_path / "none").last(base) is None


def test_where_a_line_comes_from(tmp_path: Path) -> None:
    assert commit_of(tmp_path) == ("unknown", True)
    assert {"python", "torch"} <= versions().keys()


def part(name: str, *rounds: Values, figures: Mapping[str, Kind] | None = None) -> Part:
    """Return a part that gives these values, round after round."""

    @contextlib.contextmanager
    def prepare(sizes: Sizes) -> Iterator[Measure]:
        yield lambda number: rounds[number]

    return Part(name, f"shows {name}", 1, len(rounds), {}, figures or {"x": TIME}, prepare)


def test_a_round_has_the_speed_of_its_neighbourhood() -> None:
    speeds = iter([{"hash": 1.0}, {"hash": 3.0}, {"hash": 5.0}])
    measured = run(part("a", {"x": 10.0}, {"x": 20.0}), 2, lambda: next(speeds))
    assert measured.anchors == {"hash": [2.0, 4.0]}
    assert measured.figures["x"].values == [10.0, 20.0]
    assert (measured.figures["x"].median, measured.figures["x"].spread_percent) == (15.0, 33.3)


def test_a_busy_machine_is_asked_for_fewer_rounds() -> None:
    slow = part("a", *[{"x": 1.0}] * 9)._replace(about_s=0)
    assert len(run(slow, 9, lambda: SPEEDS).figures["x"].values) == 3


@pytest.mark.parametrize(
    ("values", "says"), [({"x": 0.0}, "x is 0.0"), ({"x": float("nan")}, "x is nan"), ({"y": 1.0}, r"\['x', 'y'\]")]
)
def test_a_part_that_gives_something_else_fails(values: Values, says: str) -> None:
    with pytest.raises(PartError, match=says):
        run(part("a", values), 1, lambda: SPEEDS)


@pytest.fixture
def suite(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Return a function that runs the command over given parts and the same file."""

    def ran(parts: list[Part], *argv: str) -> int:
        monkeypatch.setattr(registry, "PARTS", tuple(parts))
        known = {one.name: one for one in parts}
        monkeypatch.setattr(command, "measured_alone", lambda name, rounds: run(known[name], rounds, lambda: SPEEDS))
        return command.main(["--path", str(tmp_path / "suite.jsonl"), *argv])

    return ran


def test_a_run_is_written_and_the_next_is_compared_with_it(
    suite: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    slow, fast = part("a", {"x": 2.0}), part("a", {"x": 1.0})
    other = part("b", {"x": 1.0})
    assert suite([fast, other], "--only", "a") == 0
    assert "shows a" in capsys.readouterr().err
    (written,) = (json.loads(text) for text in (tmp_path / "suite.jsonl").read_text().splitlines())
    assert written["figures"]["x"]["values"] == [1.0]
    assert written["anchors"] == {name: [speed] for name, speed in SPEEDS.items()}
    assert written["machine"].startswith(written["kind"])
    assert suite([slow, other], "--fail-above", "150", "--dry-run") == 0
    assert "+100.0%" in capsys.readouterr().out
    assert suite([slow, other], "--fail-above", "50") == 1
    assert "a: x changed by +100.0%, more than 50%" in capsys.readouterr().err
    assert len((tmp_path / "suite.jsonl").read_text().splitlines()) == 3


def test_a_part_that_fails_is_named_and_the_others_run(suite: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert suite([part("bad", {"x": -1.0}), part("good", {"x": 1.0})]) == 1
    seen = capsys.readouterr()
    assert "bad failed: PartError: x is -1.0" in seen.err
    assert seen.out.strip().startswith("good:")


def test_a_part_runs_in_a_process_of_its_own() -> None:
    measured = measured_alone("messages", 1)
    assert measured.figures.keys() == messages.PART.figures.keys()
    assert measured.anchors.keys() == SPEEDS.keys()


def test_parts_are_chosen_by_name(suite: Any, capsys: pytest.CaptureFixture[str]) -> None:
    parts = [part("a", {"x": 1.0}), part("b", {"x": 1.0})]
    assert suite(parts, "--list") == 0
    assert [text.split()[0] for text in capsys.readouterr().out.splitlines()] == ["a", "b"]
    with pytest.raises(SystemExit):
        suite(parts, "--only", "a,c")
    assert "no part is named c; there are a, b" in capsys.readouterr().err


def test_every_part_is_known_by_its_name_and_says_what_its_figures_are() -> None:
    names = [part.name for part in registry.PARTS]
    assert names == ["ring", "plan", "text", "messages", "kernels", "start", "demo"]
    for one in registry.PARTS:
        assert one.figures
        assert {kind.better for kind in one.figures.values()} <= {"lower", "higher"}
        assert {kind.anchor for kind in one.figures.values()} <= {*SPEEDS, "none"}


SMALL = {
    "ring": {"divisor": 1000},
    "text": {
        "session_tokens": 2_000,
        "turns": 2,
        "turn_chars": 200,
        "short_prompts": 1,
        "reply_tokens": 64,
        "budget_ms": 1,
    },
    "messages": {"budget_ms": 0},
    "kernels": {"layers": 1, "context": 40, "rows": 2, "chunk": 3, "repeats": 1},
}


@pytest.mark.parametrize("name", SMALL)
def test_a_part_in_small_gives_its_figures(name: str) -> None:
    (one,) = registry.chosen(name)
    assert SMALL[name].keys() == one.sizes.keys()
    measured = run(one._replace(sizes=SMALL[name]), 1, lambda: SPEEDS)
    assert measured.figures.keys() == one.figures.keys()


def test_a_plan_costs_something_on_both_sides() -> None:
    printed = "\n".join(
        json.dumps(
            {"rows": rows, "prompt_tokens": tokens, "waiting": waiting}
            | dict.fromkeys(("plan_us_p50", "plan_us_p99", "result_us_p50"), 0.5 + waiting)
        )
        for tokens, rows in plan.CASES
        for waiting in (0, 1000)
    )
    native = plan.native_values(f"a warning\n{printed}")
    assert set(native.values()) == {0.5}
    series = plan.decode_us(3, 200, 70)
    assert (len(series["plan"]), len(series["result"])) == (70, 70)
    face = plan.face_values(1, 2048, 64, native)
    assert face["crossing_of_native_1x2048"] == pytest.approx(
        face["face_plan_us_p50_1x2048"] + face["face_result_us_p50_1x2048"]
    )
    assert face.keys() | native.keys() >= {name for name in plan.FIGURES if name.endswith("_1x2048")}


def test_the_demo_gives_its_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    async def crowd(*_: object) -> dict[str, float]:
        return {"ttft_ms_p50": 1.0, "tpot_ms_p50": 2.0, "tokens_per_s": 3.0}

    async def session(*_: object) -> dict[str, Any]:
        return {"ttft_ms": [9, 1, 1], "ttft_ms_p50": 1}

    monkeypatch.setattr(traffic, "crowd", crowd)
    monkeypatch.setattr(traffic, "session", session)
    values = asyncio.run(demo.served(Running("http://127.0.0.1:1", "demo", 1.0, 100), demo.PART.sizes))
    assert values.keys() == demo.PART.figures.keys()
    assert values["session_first_ttft_ms"] == 9


def test_an_import_is_timed_in_a_fresh_interpreter() -> None:
    assert start.import_ms("json, decimal") > 0


def test_anchors_are_speeds() -> None:
    anchors = Anchors()
    speeds = anchors.measure()
    anchors.close()
    assert speeds.keys() == SPEEDS.keys()
    assert min(speeds.values()) > 0


def test_written_text_is_the_same_for_a_seed_and_no_other() -> None:
    assert text(3, 500) == text(3, 500)
    assert len(text(3, 500)) == 500
    assert text(3, 500) != text(4, 500)
