from __future__ import annotations

import io
import json
import shlex
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import uvloop

from tests.server.fake_engine import FakeEngine
from tokenspeed.cli import banner
from tokenspeed.cli.banner import curl, greet, tell_ready
from tokenspeed.cli.screen import Screen
from tokenspeed.config import DEVICE_DEFAULTS, ServerConfig
from tokenspeed.errors import EngineError
from tokenspeed.generation import GenerationDefaults
from tokenspeed.server.bind import bind
from tokenspeed.server.service import Sockets
from tokenspeed.server.unix import bind_unix


@pytest.fixture
def sockets(runtime: Path) -> Iterator[Sockets]:
    unix, path = bind_unix(str(runtime / "s"))
    with bind("127.0.0.1", 0) as http, unix:
        yield Sockets(http, unix, path)


def test_the_demo_says_what_it_is(sockets: Sockets, monkeypatch: pytest.MonkeyPatch) -> None:
    def greeting() -> str:
        out = io.StringIO()
        greet(Screen(out), FakeEngine(), ServerConfig(), sockets)
        return out.getvalue()

    assert "demo" not in greeting()
    monkeypatch.setattr(banner, "find_demo", lambda: FakeEngine().checkpoint.path)
    said = greeting()
    for words in ("135M parameters", "not for work", "HuggingFaceTB/SmolLM2-135M-Instruct", "Apache-2.0"):
        assert words in said


def test_a_gpu_and_dummy_weights_are_told(sockets: Sockets) -> None:
    engine = FakeEngine()
    engine.device = DEVICE_DEFAULTS["cuda"]
    engine.model = msgspec.structs.replace(engine.model, dtype="bfloat16", load_format="dummy")
    out = io.StringIO()
    greet(Screen(out), engine, ServerConfig(), sockets)
    uvloop.run(tell_ready(Screen(out), engine, ServerConfig(), sockets, 1.0))
    said = out.getvalue()
    assert "computed on the GPU in bfloat16" in said
    assert "random weights" in said
    assert "parameters" not in said
    assert "pages of 64 tokens" in said


def test_defaults_and_ends_are_told_with_their_sources(sockets: Sockets) -> None:
    engine, out = FakeEngine(), io.StringIO()
    defaults = GenerationDefaults(temperature=0.6, top_k=20, source="generation_config.json")
    engine.model = msgspec.structs.replace(engine.model, defaults=defaults)
    greet(Screen(out), engine, ServerConfig(), sockets)
    uvloop.run(tell_ready(Screen(out), engine, ServerConfig(), sockets, 1.0))
    assert "where a request does not say: temperature 0.6, top_k 20 (generation_config.json)" in out.getvalue()
    assert "replies end at <|im_end|> (id 2: config.json, chat template)" in out.getvalue()


def test_statistics_that_fail_do_not_hide_that_it_is_ready(sockets: Sockets) -> None:
    class Mute(FakeEngine):
        async def stats(self) -> object:  # type: ignore[override]
            raise EngineError("no answer")

    out = io.StringIO()
    uvloop.run(tell_ready(Screen(out), Mute(), ServerConfig(), sockets, 1.25))  # type: ignore[arg-type]
    assert "not known (no answer)" in out.getvalue()
    assert "ready in 1.2 s" in out.getvalue()


@pytest.mark.parametrize("name", ["m", "it's", 'a "b" $c'])
def test_the_line_to_paste_is_quoted(name: str) -> None:
    words = shlex.split(curl("http://127.0.0.1:1", name))
    assert words[:2] == ["curl", "http://127.0.0.1:1/v1/chat/completions"]
    assert json.loads(words[-1])["model"] == name


def test_the_line_to_paste_has_a_key_where_one_is_needed() -> None:
    line = curl("http://127.0.0.1:1", "m", keyed=True)
    assert '"Authorization: Bearer $TOKENSPEED_API_KEY"' in line
    assert "Authorization" not in curl("http://127.0.0.1:1", "m")
