"""`tokenspeed bench report FILE... -o page.html [--svg-dir DIR]`: reads raw files, writes the page and the plots."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from tokenspeed_tools.bench.raw import RawFileError
from tokenspeed_tools.report.figure import Figure
from tokenspeed_tools.report.page import figures, page
from tokenspeed_tools.report.palette import stylesheet
from tokenspeed_tools.report.shown import Shown, load


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command's arguments."""
    made = argparse.ArgumentParser(
        prog="tokenspeed bench report",
        description="Compare runs on one HTML page that needs nothing else. The others are compared with the "
        "first run of the first file.",
    )
    made.add_argument("files", nargs="+", type=Path, metavar="FILE", help="raw files that `tokenspeed bench` wrote")
    made.add_argument("-o", "--out", type=Path, required=True, metavar="PAGE", help="the page to write")
    made.add_argument("--svg-dir", type=Path, metavar="DIR", help="write each plot as an SVG file there, too")
    return made


def write_report(files: Sequence[Path], out: Path) -> None:
    """Write the page that compares all runs of the raw files. Raise `RawFileError` and `OSError`."""
    runs = load(files)
    out.write_text(page(runs, figures(runs)), encoding="utf-8")


def write_plots(drawn: Sequence[Figure], folder: Path) -> None:
    """Write each plot as a file of its own, with its style sheet in it."""
    folder.mkdir(parents=True, exist_ok=True)
    for plot in drawn:
        said = plot.draw(plot.size, stylesheet(), "wide")
        (folder / f"{plot.name}.svg").write_text(f"{said}\n", encoding="utf-8")


def main(argv: list[str]) -> int:
    """Write what is asked for; return the exit code."""
    wanted = parser().parse_args(argv)
    try:
        runs = load(wanted.files)
        drawn = figures(runs)
        wanted.out.write_text(page(runs, drawn), encoding="utf-8")
        if wanted.svg_dir:
            write_plots(drawn, wanted.svg_dir)
    except (RawFileError, OSError) as error:
        print(f"bench report: {error}", file=sys.stderr)
        return 1
    print(_done(runs, drawn, wanted.out, wanted.svg_dir))
    return 0


def _done(runs: Sequence[Shown], drawn: Sequence[Figure], out: Path, folder: Path | None) -> str:
    size = f"{out.stat().st_size / 1e6:.2f} MB"
    return f"{out}: {len(runs)} runs, {len(drawn)} plots, {size}" + (f"; plots in {folder}" if folder else "")
