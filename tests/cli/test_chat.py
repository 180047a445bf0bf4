from __future__ import annotations

import io
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.processes import COMMAND, ROOT, environment
from tests.server.doors import HI
from tests.server.fake_engine import FakeEngine, Output, Step
from tests.server.sockets import background_door
from tokenspeed.cli import chat, private
from tokenspeed.cli.private import PrivateServer
from tokenspeed.client import Client
from tokenspeed.config import EngineConfig
from tokenspeed.errors import EngineError, StartError
from tokenspeed.server.frames import private_folder, running_sockets, socket_path


def run(folder: Path, *words: str, scenario: str = "hello", stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, "chat", *words],
        env=environment(folder, scenario),
        cwd=ROOT,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )


def test_one_answer_goes_to_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    with background_door() as (engine, path):
        words = ["-p", "Hi", "--system", "Brief.", "--temperature", "0", "--seed", "4", "--max-tokens", "9"]
        assert chat.main(["--socket", str(path), *words]) == 0
        assert capsys.readouterr().out == "Hello wörld\n\n"
        prompt, sampling, _, _ = engine.asked[0]
        assert b'{"role":"system","content":"Brief."},{"role":"user","content":"Hi"}' in prompt.messages  # type: ignore[union-attr]
        assert (sampling.temperature, sampling.seed, sampling.max_tokens) == (0.0, 4, 9)


def test_the_prompt_may_come_from_standard_input(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with background_door() as (engine, path):
        monkeypatch.setattr("sys.stdin", io.StringIO("from a file"))
        assert chat.main(["--socket", str(path), "-p", "-"]) == 0
        assert b"from a file" in engine.asked[0][0].messages  # type: ignore[union-attr]
        assert capsys.readouterr().out == "Hello wörld\n\n"


def test_errors_are_one_line_and_code_1(capsys: pytest.CaptureFixture[str]) -> None:
    with background_door(lambda: FakeEngine(script=[[EngineError("broken")]]).begin()) as (_engine, path):
        assert chat.main(["--socket", str(path), "-p", "Hi"]) == 1
    assert capsys.readouterr().err == "tokenspeed chat: broken\n"
    assert chat.main(["--socket", "/nowhere/s", "-p", "Hi"]) == 1
    assert "cannot be reached" in capsys.readouterr().err


def test_a_model_that_nobody_serves_is_said(runtime: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert chat.main(["--model", "no-such-model", "-p", "Hi"]) == 1
    assert "No running server of yours serves 'no-such-model'" in capsys.readouterr().err


def test_a_conversation_remembers_and_forgets(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = iter(["one", "", "/help", "two", "/reset", "three", "/exit"])
    script: list[list[Step]] = [
        [Output("first", finish="stop")],
        [Output("half"), EngineError("lost")],
        [Output("third", finish="stop")],
    ]
    monkeypatch.setattr("builtins.input", lambda _prompt: next(lines))
    with background_door(lambda: FakeEngine(script=script).begin()) as (engine, path):
        assert chat.main(["--socket", str(path)]) == 0
        sent = [asked[0].messages for asked in engine.asked]  # type: ignore[union-attr]
    assert sent == [
        b'[{"role":"user","content":"one"}]',
        b'[{"role":"user","content":"one"},{"role":"assistant","content":"first"},{"role":"user","content":"two"}]',
        b'[{"role":"user","content":"three"}]',
    ]
    out, err = capsys.readouterr()
    assert out == "first\nhalfthird\n"
    assert "Talking to fake-model" in err
    assert "[failed] lost" in err


def test_what_was_said_before_a_failure_stays_and_a_silent_failure_leaves_nothing() -> None:
    script: list[list[Step]] = [
        [EngineError("silent")],
        [Output("half"), EngineError("lost")],
        [Output("x", finish="stop")],
    ]
    with background_door(lambda: FakeEngine(script=script).begin()) as (engine, path):
        conversation = chat.Conversation(Client(path), chat._parser().read([]))
        for text in ("one", "two"):
            with pytest.raises(EngineError):
                list(conversation.say(text))
        assert list(conversation.say("three")) == ["x"]
        assert engine.asked[2][0].messages == (  # type: ignore[union-attr]
            b'[{"role":"user","content":"two"},{"role":"assistant","content":"half"},{"role":"user","content":"three"}]'
        )


def test_a_running_server_is_found_also_by_its_model(runtime: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def named(name: str) -> Callable[[], FakeEngine]:
        said = Output(f"I am {name}.", finish="stop")
        return lambda: FakeEngine(EngineConfig(served_model_name=name), script=[[said]]).begin()

    private_folder(socket_path(1).parent)
    with background_door(named("old"), socket_path(1)), background_door(named("new"), socket_path(2)):
        os.utime(socket_path(1), (1, 1))
        assert chat.main(["-p", "Hi"]) == 0
        assert chat.main(["--model", "old", "-p", "Hi"]) == 0
        assert capsys.readouterr().out == "I am new.\nI am old.\n"


def test_a_server_that_loads_is_waited_for(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with background_door(FakeEngine) as (engine, path):
        monkeypatch.setattr("tokenspeed.cli.chat.time.sleep", lambda _s: engine.begin())
        assert chat.main(["--socket", str(path), "-p", "Hi"]) == 0
    assert capsys.readouterr() == ("Hello wörld\n\n", "Waiting for the server to load its model ...\n")


def test_without_a_server_one_is_started_and_ended(runtime: Path) -> None:
    done = run(runtime, "-p", "Hi")
    assert done.returncode == 0
    assert done.stdout == "Hello wörld\n\n"
    assert "Starting a model" in done.stderr
    assert running_sockets() == []


def test_a_server_that_fails_to_start_is_told(runtime: Path) -> None:
    done = run(runtime, "-p", "Hi", scenario="broken")
    assert done.returncode == 1
    assert "cut off at byte 7" in done.stderr
    assert "exit code 1" in done.stderr
    assert done.stdout == ""


def test_the_private_server_ends_with_its_owner(runtime: Path) -> None:
    code = (
        "import os; from tokenspeed.cli import private; from tests.cli.processes import COMMAND\n"
        "private.COMMAND = COMMAND\n"
        "with private.PrivateServer(None) as path: print(path, flush=True); os.kill(os.getpid(), 9)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment(runtime, "hello"),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL
    path = Path(done.stdout.strip())
    end_s = time.monotonic() + 5
    while path.exists():
        assert time.monotonic() < end_s, "the server outlived its owner"
        time.sleep(0.01)
    path.parent.rmdir()


def test_the_private_server_is_quiet_and_leaves_nothing(
    runtime: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(private, "COMMAND", COMMAND)
    with PrivateServer(None) as path:
        assert Client(path).call("/v1/chat/completions", HI)[0] == 200
        assert path.parent.stat().st_mode & 0o777 == 0o700
        assert running_sockets() == []
    assert not path.parent.exists()
    assert capfd.readouterr() == ("", "Starting a model for this conversation ...\n")
    with pytest.raises(StartError, match="exit code 2"), PrivateServer("--nonsense"):
        pass


class Terminal:
    """A program on a terminal of its own."""

    def __init__(self, folder: Path, *words: str) -> None:
        self._seen = ""
        self.pid, self._fd = pty.fork()
        if self.pid == 0:
            os.chdir(ROOT)
            os.execve(sys.executable, [*COMMAND, *words], environment(folder, "slow"))

    def until(self, words: str, pressing: str = "") -> str:
        """Read until `words` came; return what came before. Press keys again in each silent second."""
        end_s = time.monotonic() + 15
        while words not in self._seen:
            assert time.monotonic() < end_s, f"no {words!r} in {self._seen!r}"
            if select.select([self._fd], [], [], 1.0)[0]:
                self._seen += os.read(self._fd, 65536).decode(errors="replace")
            elif pressing:
                self.type(pressing)
        before, _, self._seen = self._seen.partition(words)
        return before

    def type(self, text: str) -> None:
        """Press keys."""
        os.write(self._fd, text.encode())

    def exit_code(self) -> int:
        """Wait for the end."""
        _, status = os.waitpid(self.pid, 0)
        self.pid = 0
        return os.waitstatus_to_exitcode(status)

    def end(self) -> None:
        """Kill it if it is still there."""
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self._fd)


def test_in_a_terminal_ctrl_c_stops_the_reply_and_not_the_program(runtime: Path) -> None:
    terminal = Terminal(runtime, "chat")
    try:
        assert "loading weights 2/2" in terminal.until("> ")
        terminal.type("count\n")
        terminal.until("3 4 5 ")
        terminal.type("\x03")
        terminal.until("[stopped]")
        terminal.until("> ")
        # The interpreter looks for signals before it waits for a key: one that comes between is seen later.
        terminal.type("\x03")
        terminal.until("Ctrl-D ends", pressing="\x03")
        terminal.type("again\n")
        terminal.until("1 2 3 ")
        terminal.type("\x03")
        terminal.until("> ")
        terminal.type("\x04")
        assert terminal.exit_code() == 0
    finally:
        terminal.end()
