"""A whole server with keys: tenants apart, keys out of sight, limits kept, and a stream beside hostile requests."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from tests.e2e.harness import children
from tests.e2e.served import Server, serving
from tests.server.hostile import HOSTILE

pytestmark = pytest.mark.long

ANN, BOB, ROOT = ({"x-api-key": key} for key in ("ann-sesame", "bob-sesame", "root-sesame"))
CHAT = "/v1/chat/completions"
LONG = {"messages": [{"role": "user", "content": "Tell me of ships. " * 8}], "temperature": 0, "ignore_eos": True}


class Served:
    def __init__(self, server: Server, keys: Path) -> None:
        self.server = server
        self.keys = keys
        self.client = httpx.Client(base_url=server.url, timeout=60.0)

    def ask(self, key: dict[str, str], **more: object) -> httpx.Response:
        return self.client.post(CHAT, json={**LONG, "max_tokens": 4, **more}, headers=key)


@pytest.fixture(scope="module")
def served(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    keys = tmp_path_factory.mktemp("keys") / "keys"
    keys.write_text("ann:ann-sesame\nbob:bob-sesame\n")
    flags = ["--api-key-file", str(keys), "--admin-key", "root-sesame", "--max-num-seqs", "2"]
    limits = ["--max-queued-requests", "2", "--max-request-bytes", "1M"]
    with serving(tiny_model, *flags, *limits, "--trust-request-chat-template") as server:
        served = Served(server, keys)
        yield served
        served.client.close()


def cached(reply: httpx.Response) -> int:
    assert reply.status_code == 200, reply.text
    tokens: int = reply.json()["usage"]["prompt_tokens_details"]["cached_tokens"]
    return tokens


def test_what_one_key_warmed_is_cold_for_the_other(served: Served) -> None:
    assert cached(served.ask(ANN)) == 0
    warm = cached(served.ask(ANN))
    assert warm > 0
    assert cached(served.ask(BOB)) == 0
    assert cached(served.ask(BOB)) == warm
    assert cached(served.ask(BOB, cache_salt="ann")) == 0
    assert served.ask(ANN).json()["choices"] == served.ask(BOB).json()["choices"]


def test_keys_are_out_of_sight(served: Served) -> None:
    assert served.ask({}).status_code == served.ask({"x-api-key": "sesame"}).status_code == 401
    pid = served.server.process.pid
    for each in (pid, *children(pid)):
        shown = Path(f"/proc/{each}/cmdline").read_bytes() + Path(f"/proc/{each}/environ").read_bytes()
        assert b"sesame" not in shown
    assert "sesame" not in served.server.printed


def test_admin_routes_and_health_tell_all_to_the_admin_alone(served: Served) -> None:
    assert served.client.get("/health").json() == {"status": "ready", "ready": True}
    assert served.client.get("/stats", headers=ANN).status_code == 401
    assert served.client.get("/stats", headers=ROOT).json()["pages_total"] > 0
    assert served.client.post("/flush_cache", headers=ROOT).json()["pages_freed"] > 0


def test_a_template_of_the_request_is_rendered_and_a_bomb_is_refused(served: Served) -> None:
    usage = served.ask(ANN, chat_template="{{ shout }}", chat_template_kwargs={"shout": "ho"}).json()["usage"]
    assert 1 <= usage["prompt_tokens"] <= 4
    bomb = "{% set n = namespace(l=[]) %}{% for a in range(99) %}{% set n.l = [n.l, n.l] %}{% endfor %}{{ n.l }}"
    reply = served.ask(ANN, chat_template=bomb)
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, "chat_template")


def test_a_stream_beside_the_catalogue_says_what_it_says_in_quiet(served: Served) -> None:
    quiet = streamed(served)
    heard: list[str] = []
    beside = threading.Thread(target=lambda: heard.append(streamed(served)))
    beside.start()
    for hostile in HOSTILE:
        if hostile.name.startswith("chat_template="):
            continue  # this server takes them
        reply = served.client.post(CHAT, content=hostile.body, headers={**BOB, **hostile.headers})
        assert reply.status_code == hostile.status, (hostile.name, reply.text[:300])
    beside.join()
    assert heard == [quiet]
    assert served.client.get("/health", headers=ROOT).json()["actors"]["tokenizer"]["restarts"] == 0


def streamed(served: Served) -> str:
    body = {**LONG, "max_tokens": 400, "stream": True}
    text = httpx.post(f"{served.server.url}{CHAT}", json=body, headers=ANN, timeout=60.0).text
    chunks = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
    return "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks)


def test_the_queue_is_bounded_and_told_before_the_headers(served: Served) -> None:
    with ExitStack() as open_ones:
        for _ in range(4):
            body = {**LONG, "max_tokens": 5_000, "stream": True}
            reply = open_ones.enter_context(served.client.stream("POST", CHAT, json=body, headers=ANN))
            assert reply.status_code == 200
        refused = served.ask(BOB, stream=True)
        assert (refused.status_code, refused.json()["error"]["code"]) == (429, "overloaded")
        assert int(refused.headers["retry-after"]) >= 1
    end_s = time.monotonic() + 5.0
    while served.client.get("/health", headers=ROOT).json()["requests_open"]:
        assert time.monotonic() < end_s
        time.sleep(0.02)
    assert served.ask(BOB).status_code == 200


def test_keys_are_read_again_on_sighup(served: Served) -> None:
    served.keys.write_text("bob:new-sesame\n")
    served.server.process.send_signal(signal.SIGHUP)
    end_s = time.monotonic() + 5.0
    while served.ask({"x-api-key": "new-sesame"}).status_code != 200:
        assert time.monotonic() < end_s
        time.sleep(0.02)
    assert served.ask(ANN).status_code == 401
    assert cached(served.ask({"x-api-key": "new-sesame"})) > 0
