from __future__ import annotations

import argparse

import pytest

from tokenspeed.cli.parser import Parser, context, endpoint, json_object, nearest, seconds, size, whole


@pytest.mark.parametrize(
    ("text", "count"),
    [("1", 1), ("1024", 1024), ("1K", 1024), ("2m", 2 << 20), ("1.5G", 3 << 29), ("1GiB", 1 << 30), ("4 TB", 4 << 40)],
)
def test_sizes(text: str, count: int) -> None:
    assert size(text) == count


@pytest.mark.parametrize("text", ["", "0", "-1", "G", "1X", "1e9", "one"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        size(text)


@pytest.mark.parametrize(
    ("text", "tokens"),
    [("32768", 32768), ("32k", 32000), ("32K", 32768), ("25.6k", 25600), ("1m", 10**6), ("1M", 1 << 20)],
)
def test_contexts(text: str, tokens: int) -> None:
    assert context(text) == tokens
    assert context("auto") == context("-1") == "auto"


@pytest.mark.parametrize("text", ["", "0", "-2", "1.5", "32kb", "4G", "automatic", "9999999K"])
def test_what_is_no_context(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="not auto or a number of tokens"):
        context(text)


def test_json_objects() -> None:
    assert json_object('{"a": {"b": [1]}}') == {"a": {"b": [1]}}
    for text in ("", "[1]", "{a: 1}", "3"):
        with pytest.raises(argparse.ArgumentTypeError, match="not a JSON object"):
            json_object(text)


@pytest.mark.parametrize(("text", "value"), [("0", 0.0), ("1.5", 1.5)])
def test_seconds(text: str, value: float) -> None:
    assert seconds(text) == value


@pytest.mark.parametrize("text", ["-1", "nan", "inf", "soon", ""])
def test_what_are_no_seconds(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        seconds(text)


def test_whole_numbers_have_borders() -> None:
    assert [whole(1, 3)(text) for text in ("1", "3")] == [1, 3]
    for text in ("0", "4", "1.0", "x"):
        with pytest.raises(argparse.ArgumentTypeError):
            whole(1, 3)(text)


def test_nearest() -> None:
    assert nearest("--prot", ["--port", "--host"]) == " (did you mean --port?)"
    assert nearest("--zzz", ["--port", "--host"]) == ""


def test_no_abbreviations(capsys: pytest.CaptureFixture[str]) -> None:
    parser = Parser("x", "y")
    parser.add_argument("--port")
    assert parser.read(["--port", "1"]).port == "1"
    with pytest.raises(SystemExit) as left:
        parser.read(["--por", "1"])
    assert left.value.code == 2
    assert "did you mean --port?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("http://otel:4318", "http://otel:4318/v1/traces"),
        ("https://otel.example/", "https://otel.example/v1/traces"),
        ("http://otel:4318/custom", "http://otel:4318/custom"),
    ],
)
def test_the_url_of_a_collector(text: str, url: str) -> None:
    assert endpoint(text) == url


@pytest.mark.parametrize("text", ["", "otel:4317", "grpc://otel:4317", "http://"])
def test_what_is_no_collector_over_http(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="not gRPC"):
        endpoint(text)
