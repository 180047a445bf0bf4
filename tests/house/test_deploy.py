"""The files in deploy/ name settings that exist, and limits that fit each other."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tokenspeed.cli.settings import options
from tokenspeed.config import ServerConfig
from tokenspeed.engine.metrics import METRICS

REPOSITORY = Path(__file__).resolve().parents[2]
FILES = sorted((REPOSITORY / "deploy").iterdir())
OWN = {"--config", "--start-period", "--interval", "--no-cache-dir", "--index-url", "--create-home", "--uid"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_its_flags_and_variables_exist(path: Path) -> None:
    text = path.read_text()
    flags, variables = {option.flag for option in options()}, {option.variable for option in options()}
    assert set(re.findall(r"--[a-z][a-z-]+", text)) <= flags | OWN
    assert set(re.findall(r"TOKENSPEED_[A-Z_]+", text)) <= variables
    assert path.name in (REPOSITORY / "docs/deploy.md").read_text()


@pytest.mark.parametrize("name", ["grafana.json", "alerts.yaml"])
def test_what_is_watched_is_told(name: str) -> None:
    text = (REPOSITORY / "deploy" / name).read_text()
    if name.endswith("json"):
        panels = json.loads(text)["panels"]
        expressions = [target["expr"] for panel in panels for target in panel.get("targets", ())]
    else:
        expressions = re.findall(r"^ +expr: (.+)$", text, re.MULTILINE)
        assert len(expressions) == text.count("- alert:")
    for expression in expressions:
        for full in re.findall(r"tokenspeed:(\w+)", expression):
            metric = METRICS.get(full) or METRICS[re.sub(r"_(bucket|sum|count)$", "", full)]
            assert (metric.kind == "histogram") == (metric.name != full), full
        for label, value in re.findall(r'(\w+)="([^"~]+)"', expression):
            closed = [each.values for metric in METRICS.values() for each in metric.labels if each.name == label]
            assert not closed or any(value in values for values in closed), (label, value)


def test_whoever_stops_the_server_waits_longer_than_it_drains() -> None:
    texts = {path.name: path.read_text() for path in FILES}
    unit = re.search(r"^TimeoutStopSec=(\d+)$", texts["tokenspeed.service"], re.MULTILINE)
    pod = re.search(r"terminationGracePeriodSeconds: (\d+)", texts["kubernetes.yaml"])
    assert unit is not None
    assert pod is not None
    assert min(int(unit[1]), int(pod[1])) > ServerConfig().drain_timeout_s


def test_a_proxy_takes_bodies_as_large_and_lets_go_of_connections_first() -> None:
    nginx = (REPOSITORY / "deploy/nginx.conf").read_text()
    size, idle = re.search(r"client_max_body_size (\d+)m", nginx), re.search(r"keepalive_timeout (\d+)s", nginx)
    assert size is not None
    assert idle is not None
    assert int(size[1]) << 20 == ServerConfig().request_bytes_max
    assert int(idle[1]) < ServerConfig().idle_s_max
    assert "proxy_buffering off;" in nginx
