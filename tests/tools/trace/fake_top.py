"""`top` of an engine that does nothing, as a process of its own: `python -m tests.tools.trace.fake_top`."""

from __future__ import annotations

import sys
from pathlib import Path
from unittest import mock

from tokenspeed_tools.trace import top

from tests.tools.trace.fake_engine import FakeEngine

if __name__ == "__main__":
    engine = FakeEngine()
    with (
        mock.patch.object(top, "attach", return_value=engine.attachment()),
        mock.patch.object(top, "find_engine", return_value=Path("1/control.sock")),
        mock.patch.object(top, "EACH_S", 0.2),
    ):
        sys.exit(top.main(sys.argv[1:]))
