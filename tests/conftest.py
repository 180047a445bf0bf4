"""The convention of proofs, for every test.

A test marked `prove` shows something that is promised. It runs under `make prove` only. The marker
takes `shows=` (what, in a sentence) and `limit_s=`; figures go through the fixture `proof`:

    @pytest.mark.prove(shows="a cached turn starts in a third of the time", limit_s=300)
    def test_turns(proof):
        proof(ttft_ms_cold=910, ttft_ms_warm=120)
"""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

Record = Callable[..., None]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--list-proofs`, which `make prove` uses."""
    parser.addoption("--list-proofs", action="store_true", help="print a line for each test marked `prove`")


@pytest.fixture
def proof(request: pytest.FixtureRequest) -> Record:
    """Return a function that records figures: it prints them as a line `PROOF {json}`."""
    capture = request.config.pluginmanager.getplugin("capturemanager")
    _, bracket, parameters = request.node.name.partition("[")

    def record(**figures: object) -> None:
        case = {"case": parameters.rstrip("]")} if bracket else {}
        with capture.global_and_fixture_disabled():
            print(f"\nPROOF {json.dumps({**case, **figures})}", flush=True)

    return record


def pytest_collection_finish(session: pytest.Session) -> None:
    """Print what each collected proof shows, its parameters together."""
    if not session.config.getoption("--list-proofs"):
        return
    seen = set()
    for item in session.items:
        marker = item.get_closest_marker("prove")
        node = item.nodeid.partition("[")[0]
        if marker is not None and node not in seen:
            seen.add(node)
            entry = {
                "node": node,
                "shows": marker.kwargs.get("shows", item.name.removeprefix("test_").replace("_", " ")),
                "limit_s": marker.kwargs.get("limit_s"),
            }
            print(f"\nPROOF-NODE {json.dumps(entry)}")
