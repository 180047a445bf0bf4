"""The page of settings is what the parser takes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tokenspeed_tools.flags import main, page

from tokenspeed.cli.settings import options
from tokenspeed.cli.sources import parser

DOCUMENT = Path(__file__).resolve().parents[2] / "docs/flags.md"


def test_the_page_is_current(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["flags", str(tmp_path / "flags.md")])
    main()
    assert (tmp_path / "flags.md").read_text() == DOCUMENT.read_text(), "run python -m tokenspeed_tools.flags"


def test_the_page_has_each_flag_of_the_parser_and_no_other() -> None:
    taken = set(re.findall(r"(--[a-z0-9-]+)", " ".join(parser()._option_string_actions)))
    described = page().partition("## Refused")[0]
    assert set(re.findall(r"`(--[a-z0-9-]+)", described)) == taken


def test_every_setting_has_words_and_a_variable() -> None:
    for option in options():
        assert f"`{option.variable}`" in page()
        assert option.setting.help


def test_the_help_fits_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = parser().format_help().splitlines()
    assert max(map(len, lines)) <= 80
    titles = [line for line in lines if re.fullmatch(r"[A-Za-z ]+:", line)]
    assert len(titles) == len(set(titles)) >= 6
