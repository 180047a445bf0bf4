"""`make prove`: figures are read, results are kept, what is shown is not run again."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tokenspeed_tools.prove import command, registry
from tokenspeed_tools.prove.ledger import Ledger, source_digest
from tokenspeed_tools.prove.registry import Proof, marked_tests, ring_fault
from tokenspeed_tools.prove.run import read_figures, run

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Return a repository with one commit."""
    for arguments in (["init", "-q"], ["config", "user.email", "a@example.com"], ["config", "user.name", "a"]):
        subprocess.run(["git", *arguments], cwd=tmp_path, check=True)
    (tmp_path / "source.py").write_text("one = 1\n")
    subprocess.run(["git", "add", "."], cwd=tmp_path, check=True)
    subprocess.run(["git", "commit", "-qm", "one"], cwd=tmp_path, check=True)
    return tmp_path


def script(name: str, text: str, limit_s: float = 20.0) -> Proof:
    """Return a proof that runs a line of Python."""
    return Proof(name, "something", (sys.executable, "-c", text), limit_s)


def lines(repository: Path) -> list[dict[str, object]]:
    """Return what the file of results holds."""
    return [json.loads(line) for line in (repository / "benchmarks/prove.jsonl").read_text().splitlines()]


def test_figures_come_from_marked_lines_or_a_last_json_line() -> None:
    assert read_figures('noise\nPROOF {"tokens": 3}\n1 passed') == {"tokens": 3}
    assert read_figures('PROOF {"case": "a", "x": 1}\nPROOF {"case": "b", "x": 2}') == {"a": {"x": 1}, "b": {"x": 2}}
    assert read_figures('p50 is 3\n{"p50_us": 3}\n') == {"p50_us": 3}
    assert read_figures("PROOF {broken\nnothing") == {}


def test_the_fixture_prints_such_a_line(tmp_path: Path) -> None:
    (tmp_path / "test_sample.py").write_text(
        "import pytest\n@pytest.mark.parametrize('n', [1, 2])\ndef test_numbers(proof, n):\n    proof(square=n * n)\n"
    )
    arguments = ["-p", "tests.conftest", "--rootdir", str(tmp_path), str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *arguments], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    assert read_figures(done.stdout) == {"1": {"square": 1}, "2": {"square": 4}}


def test_what_passes_is_written_down_and_not_run_again(
    repository: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "import pathlib; pathlib.Path('benchmarks/ran').open('a').write('x'); print('PROOF {\"ms\": 5}')"
    monkeypatch.chdir(repository)
    monkeypatch.setattr(registry, "everything", lambda _: [script("good", text), script("bad", "raise SystemExit(3)")])
    (repository / "benchmarks").mkdir()
    for _ in range(2):
        assert command.main([]) == 1
    assert (repository / "benchmarks/ran").read_text() == "x"
    assert [(line["proof"], line["ok"]) for line in lines(repository)] == [
        ("good", True),
        ("bad", False),
        ("bad", False),
    ]
    assert lines(repository)[0]["figures"] == {"ms": 5}
    assert {"seconds", "commit", "source", "machine"} <= lines(repository)[0].keys()
    assert "exit status 3" in str(lines(repository)[1]["reason"])
    assert "prove: 0 passed, 1 failed, 1 skipped" in capsys.readouterr().out
    command.main(["--again", "--only", "good"])
    assert (repository / "benchmarks/ran").read_text() == "xx"


def test_a_changed_source_asks_again_but_results_and_prose_do_not(repository: Path) -> None:
    path = repository / "benchmarks/prove.jsonl"
    Ledger(path, repository).add("a", ok=True, figures={}, seconds=1.0, reason="")
    (repository / "README.md").write_text("prose")
    subprocess.run(["git", "add", "."], cwd=repository, check=True)
    subprocess.run(["git", "commit", "-qm", "two"], cwd=repository, check=True)
    assert Ledger(path, repository).proved("a")
    before = source_digest(repository)
    (repository / "source.py").write_text("two = 2\n")
    assert source_digest(repository) != before
    assert not Ledger(path, repository).proved("a")


def test_a_line_cut_short_spoils_nothing(repository: Path) -> None:
    path = repository / "benchmarks/prove.jsonl"
    Ledger(path, repository).add("a", ok=True, figures={}, seconds=1.0, reason="")
    with path.open("a") as file:
        file.write('{"proof": "b", "o')
    ledger = Ledger(path, repository)
    assert ledger.proved("a")
    ledger.add("c", ok=True, figures={}, seconds=1.0, reason="")
    assert Ledger(path, repository).proved("c")


def test_a_proof_past_its_limit_is_ended_with_its_children(tmp_path: Path) -> None:
    text = "import subprocess; subprocess.run(['sleep', '30'])"
    begun = time.monotonic()
    outcome = run(script("slow", text, limit_s=0.5), tmp_path)
    assert "not done within" in outcome.reason
    assert time.monotonic() - begun < 10.0


def test_figures_below_what_is_promised_fail() -> None:
    good = {
        "pingpong_p50_ratio_to_zmq": 0.2,
        "throughput_200b_ratio_to_zmq": 4.0,
        "throughput_200kb_ratio_to_zmq": 2.5,
    }
    assert ring_fault(good) == ""
    assert "pingpong_p50_ratio_to_zmq is 0.3" in ring_fault({**good, "pingpong_p50_ratio_to_zmq": 0.3})
    assert "pingpong_p50_ratio_to_zmq is None" in ring_fault({})


def test_marked_tests_are_found_once_for_all_parameters() -> None:
    found = {proof.name for proof in marked_tests(REPOSITORY, "tests/house")}
    assert any(name.startswith("tests/house/test_install.py::") for name in found)
    assert not any("[" in name for name in found)
