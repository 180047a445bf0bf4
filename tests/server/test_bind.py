from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

from tokenspeed.errors import StartError
from tokenspeed.server import bind as bind_module
from tokenspeed.server.bind import bind, holder, url_of

HOLD = """import socket, sys
sock = socket.socket()
sock.bind(("127.0.0.1", 0))
sock.listen()
print(sock.getsockname()[1], flush=True)
sys.stdin.read()
"""


def test_a_free_port_listens_and_its_url_is_known() -> None:
    with bind("127.0.0.1", 0) as sock:
        port = sock.getsockname()[1]
        assert url_of(sock) == f"http://127.0.0.1:{port}"
        with socket.create_connection(("127.0.0.1", port), timeout=1.0):
            pass


def test_all_addresses_are_reached_by_the_loopback_url() -> None:
    with bind("0.0.0.0", 0) as sock:
        assert url_of(sock).startswith("http://127.0.0.1:")


def test_localhost_prefers_ipv4() -> None:
    with bind("localhost", 0) as sock:
        assert sock.family == socket.AF_INET


@pytest.mark.skipif(not socket.has_ipv6 or not os.path.exists("/proc/net/if_inet6"), reason="no IPv6 here")
def test_ipv6_urls_have_brackets() -> None:
    with bind("::1", 0) as sock:
        assert url_of(sock) == f"http://[::1]:{sock.getsockname()[1]}"


def test_a_port_in_use_names_its_holder_and_the_mend() -> None:
    with subprocess.Popen([sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        with pytest.raises(StartError) as refused:
            bind("127.0.0.1", port)
        process.terminate()
    message = refused.value.message
    assert f"port {port} on 127.0.0.1 is in use by pid {process.pid} (" in message
    assert "import socket" in message
    assert f"--port {port + 1}" in message or "--port 8000" in message


def test_a_holder_that_cannot_be_seen_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bind_module, "_holds", lambda _pid, _inodes: False)
    with bind("127.0.0.1", 0) as sock, pytest.raises(StartError, match="not visible"):
        bind("127.0.0.1", sock.getsockname()[1])


def test_a_free_port_has_no_holder() -> None:
    with bind("127.0.0.1", 0) as sock:
        port = sock.getsockname()[1]
        assert holder(port) is not None
    assert holder(port) is None


def test_a_port_is_free_again_at_once_after_its_server() -> None:
    with bind("127.0.0.1", 0) as sock:
        port = sock.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as client:
            peer, _ = sock.accept()
            peer.close()  # our side closes first and is left in TIME_WAIT
            client.recv(1)
    with bind("127.0.0.1", port):
        pass


@pytest.mark.parametrize(
    ("host", "words"),
    [("203.0.113.7", "no address of this machine"), ("no such host", "cannot be resolved"), ("a" * 70, "resolved")],
)
def test_a_host_that_cannot_be_bound_is_said(host: str, words: str) -> None:
    with pytest.raises(StartError, match=words):
        bind(host, 0)


def test_a_privileged_port_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(socket.socket, "bind", refuse)
    with pytest.raises(StartError, match="above 1023"):
        bind("127.0.0.1", 80)
