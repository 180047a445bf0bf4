"""A Hub of one process: repositories of a dictionary, over the few requests that its library makes."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

SHA = "c0ffee" * 6 + "c0ff"

Repositories = dict[str, dict[str, bytes]]


class FakeHub(ThreadingHTTPServer):
    """`repositories` by name, files by path; `gated` and private ones want `token`."""

    daemon_threads = True

    def __init__(self, repositories: Repositories) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.repositories = repositories
        self.gated: set[str] = set()
        self.token = "hf_letmein"
        self.served: list[str] = []

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.server_address[1]}"


@contextmanager
def fake_hub(repositories: Repositories) -> Iterator[FakeHub]:
    """Serve `repositories` meanwhile."""
    hub = FakeHub(repositories)
    thread = threading.Thread(target=hub.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield hub
    finally:
        hub.shutdown()
        hub.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    server: FakeHub
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        parts = unquote(urlsplit(self.path).path).strip("/").split("/")
        if parts[:2] == ["api", "models"]:
            self._api("/".join(parts[2:4]), parts[4:])
        elif parts[2:3] == ["resolve"]:
            self._file("/".join(parts[:2]), parts[3], "/".join(parts[4:]))
        else:
            self._answer(404, b"{}")

    def do_HEAD(self) -> None:
        self.do_GET()

    def _api(self, repo: str, rest: list[str]) -> None:
        if not self._may(repo) or not self._knows(rest[1] if len(rest) > 1 else "main"):
            return
        files = self.server.repositories[repo]
        tree = [{"type": "file", "path": name, "size": len(data), "oid": _tag(data)} for name, data in files.items()]
        info = {"id": repo, "sha": SHA, "siblings": [{"rfilename": name} for name in files]}
        self._answer(200, json.dumps(tree if rest[:1] == ["tree"] else info).encode())

    def _file(self, repo: str, revision: str, name: str) -> None:
        if not self._may(repo) or not self._knows(revision):
            return
        data = self.server.repositories[repo][name]
        if self.command == "GET":
            self.server.served.append(name)
        self._answer(200, data, ETag=f'"{_tag(data)}"', **{"X-Repo-Commit": SHA})

    def _may(self, repo: str) -> bool:
        trusted = self.headers.get("Authorization") == f"Bearer {self.server.token}"
        if repo not in self.server.repositories:
            self._answer(401, b"{}", **{"X-Error-Code": "RepoNotFound"})
        elif repo in self.server.gated and not trusted:
            self._answer(403, b"{}", **{"X-Error-Code": "GatedRepo"})
        else:
            return True
        return False

    def _knows(self, revision: str) -> bool:
        if revision in ("main", "v1", SHA):
            return True
        self._answer(404, b"{}", **{"X-Error-Code": "RevisionNotFound"})
        return False

    def _answer(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        """Say nothing."""


def _tag(data: bytes) -> str:
    return hashlib.sha1(data).hexdigest()
