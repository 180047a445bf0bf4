"""Whole pages: well formed, closed to the outside, no text cut or on top of another."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest
from tokenspeed_tools.report import main, write_report
from tokenspeed_tools.report.measure import text_width
from tokenspeed_tools.report.place import Box

from tests.tools.report.synthetic import a_request, a_run, a_session_load, a_sweep, write

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = '"><script>alert(1)</script><img src="http://evil.example/x" onerror=alert(2)>&\u202e\x00]]>' + "W" * 300


def tree(text: str) -> ElementTree.Element:
    """Return the page as a tree: it is well-formed XML, too."""
    return ElementTree.fromstring(text.removeprefix("<!doctype html>\n"))


def texts(drawing: ElementTree.Element) -> Iterator[tuple[str, Box]]:
    """Yield each text of a drawing and the room that it takes at most."""
    for text in drawing.iter(f"{SVG}text"):
        said, x, y = text.text or "", float(text.attrib["x"]), float(text.attrib["y"])
        width = text_width(said, 12)
        left = x - {"start": 0.0, "middle": width / 2, "end": width}[text.get("text-anchor", "start")]
        yield said, Box(left, y - 9, left + width, y + 2)


def overlaps(one: Box, other: Box) -> bool:
    """Return whether two texts lie on each other."""
    return one.left < other.right and other.left < one.right and one.top < other.bottom and other.top < one.bottom


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ElementTree.Element]:
    """Pages of two runs, of two sweeps, of names that want to do harm, and of a run where all failed."""
    folder = tmp_path_factory.mktemp("pages")
    two = [(a_run("ours"), a_session_load(1)), (a_run("theirs, with a name that is rather long"), a_session_load(2))]
    target = msgspec.structs.replace(
        a_run().target, server=HOSTILE, model=HOSTILE, url=HOSTILE, server_info={HOSTILE: HOSTILE}
    )
    bad = a_run(HOSTILE, target=target, notes={HOSTILE: HOSTILE}, workload={HOSTILE: [HOSTILE]}, command=[HOSTILE])
    failed = [a_request(0), a_request(1, error=HOSTILE, chunks=[], finish=HOSTILE, request_id=HOSTILE, turn=1)]
    files = {
        "two": [write(folder / "two.jsonl", two)],
        "sweep": [
            write(folder / "a.jsonl", a_sweep("ours", 1, 1.2, loads=(1, 2, 4, 8))),
            write(folder / "b.jsonl", a_sweep("theirs", 5, 0.9, gpus=0, loads=(1, 2, 4, 8))),
        ],
        "hostile": [write(folder / "bad.jsonl", [(bad, failed), (a_run("good"), [a_request(0)])])],
        "failed": [
            write(folder / "failed.jsonl", [(a_run(), [a_request(0, error="reset", chunks=[])]), (a_run(), [])])
        ],
    }
    for name, raw in files.items():
        write_report(raw, folder / f"{name}.html")
    return {name: tree((folder / f"{name}.html").read_text()) for name in files}


NAMES = ("two", "sweep", "hostile", "failed")


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_loaded_and_nothing_runs(pages: dict[str, ElementTree.Element], name: str) -> None:
    for found in pages[name].iter():
        tag = found.tag.removeprefix(SVG)
        assert tag not in ("script", "img", "iframe", "object", "embed", "link", "image", "use", "foreignObject")
        for key, value in found.attrib.items():
            assert not key.startswith("on"), key
            assert key not in ("src", "srcset", "action", "style"), key
            assert key != "href" or value.startswith("#")
        assert tag != "style" or not re.search(r"url\(|@import", found.text or "")
    (policy,) = (meta for meta in pages[name].iter("meta") if "http-equiv" in meta.attrib)
    assert policy.attrib["content"].startswith("default-src 'none';")


@pytest.mark.parametrize("name", NAMES)
def test_no_text_of_a_drawing_is_cut_or_covered(pages: dict[str, ElementTree.Element], name: str) -> None:
    drawings = [svg for svg in pages[name].iter(f"{SVG}svg") if svg.get("role") == "img"]
    assert len(drawings) >= (4 if name != "failed" else 2)
    for drawing in drawings:
        width, height = (float(part) for part in drawing.attrib["viewBox"].split()[2:])
        found = list(texts(drawing))
        assert found
        for said, box in found:
            assert box.inside(Box(0, 0, width, height)), said
        for (said, one), (also, other) in combinations(found, 2):
            assert not overlaps(one, other), (said, also)


@pytest.mark.parametrize("name", NAMES)
def test_readers_of_every_kind_can_read_it(pages: dict[str, ElementTree.Element], name: str) -> None:
    top = pages[name]
    ids = [found.attrib["id"] for found in top.iter() if "id" in found.attrib]
    assert len(ids) == len(set(ids))
    assert {link.attrib["href"][1:] for link in top.iter("a")} <= set(ids)
    assert all(head.get("scope") in ("col", "row") for head in top.iter("th"))
    assert all(len(table.findall("caption")) == 1 for table in top.iter("table"))
    for table in top.iter("table"):
        assert len({len(row) for row in table.iter("tr")}) == 1
    assert all(svg.get("aria-label") or svg.get("aria-hidden") for svg in top.iter(f"{SVG}svg"))
    assert top.attrib["lang"] == "en"


def said(top: ElementTree.Element) -> str:
    """Return the text of a page, without its style sheet."""
    body = top.find("body")
    assert body is not None
    return " ".join(" ".join(body.itertext()).split())


def test_a_page_says_what_was_run_and_what_differs(pages: dict[str, ElementTree.Element]) -> None:
    text = said(pages["two"])
    for words in ("Benchmark: ours against theirs", "2026-01-02 03:04:05 UTC", "tokenspeed 0.1.0", "a laptop, 2 cores"):
        assert words in text
    assert "48 ok, 0 failed" in text
    assert "per GPU" not in text.partition("How each figure is made")[0]
    assert "output tokens per minute per GPU (per engine where there is none)" in said(pages["sweep"])
    assert "workload.concurrency" in said(pages["sweep"]).partition("equal in all runs")[0]


def test_names_that_want_to_do_harm_are_shown_as_they_are(pages: dict[str, ElementTree.Element]) -> None:
    text = said(pages["hostile"])
    assert '"><script>alert(1)</script><img src="http://evil.example/x" onerror=alert(2)>&\ufffd\ufffd]]>' in text


def test_many_requests_make_a_small_page_that_says_what_it_left_out(tmp_path: Path) -> None:
    requests = [a_request(index, index * 0.01, ttft_s=0.1 + index % 97 / 50) for index in range(5_000)]
    path = write(tmp_path / "many.jsonl", [(a_run(f"run {number}"), requests) for number in range(2)])
    write_report([path], tmp_path / "many.html")
    text = (tmp_path / "many.html").read_text()
    assert len(text.encode()) < 1_000_000
    assert "of 5,000 requests" in said(tree(text))
    assert "n 5,000" in said(tree(text))


def test_the_command_writes_the_page_and_each_plot(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    raw = write(tmp_path / "sweep.jsonl", a_sweep("ours", 1, 1.0, loads=(1, 4)))
    assert main([str(raw), "-o", str(tmp_path / "page.html"), "--svg-dir", str(tmp_path / "svg")]) == 0
    assert "2 runs" in capsys.readouterr().out
    plots = sorted(path.name for path in (tmp_path / "svg").iterdir())
    assert plots == [
        "itl.svg",
        "pareto.svg",
        "timeline-1.svg",
        "timeline-2.svg",
        "tokens-per-second.svg",
        "ttft-by-turn.svg",
        "ttft.svg",
    ]
    for path in (tmp_path / "svg").iterdir():
        drawing = ElementTree.fromstring(path.read_text())
        assert drawing.find(f"{SVG}style") is not None


@pytest.mark.parametrize("text", [None, "", "not json\n"])
def test_a_file_that_cannot_be_read_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str | None
) -> None:
    path = tmp_path / "raw.jsonl"
    if text is not None:
        path.write_text(text)
    assert main([str(path), "-o", str(tmp_path / "page.html")]) == 1
    assert "raw.jsonl" in capsys.readouterr().err
    assert not (tmp_path / "page.html").exists()
