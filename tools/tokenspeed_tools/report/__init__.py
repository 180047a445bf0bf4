"""`tokenspeed bench report`: one page that compares runs, from the raw files of benchmarks."""

from tokenspeed_tools.report.command import main, write_report

__all__ = ["main", "write_report"]
