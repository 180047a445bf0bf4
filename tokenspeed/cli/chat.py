"""`tokenspeed chat`: a conversation in the terminal.

Owns the conversation and the keyboard. It speaks to a running server over the Unix socket, else to
a server of its own that ends with it. Ctrl-C ends the reply that is being written, not the program.

Invariant: a turn that failed before any text came leaves no trace in the conversation.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

from tokenspeed.cli.parser import Parser, whole
from tokenspeed.cli.private import PrivateServer
from tokenspeed.client import Client
from tokenspeed.errors import TokenSpeedError, UserError
from tokenspeed.server.frames import running_sockets

FAILED = 1
INTERRUPTED = 130
LOOK_S = 0.1
HELP = "/reset forgets the conversation, /exit or Ctrl-D ends, Ctrl-C stops a reply."


def main(argv: list[str]) -> int:
    """Run the command and return its exit code."""
    options = _parser().read(argv)
    try:
        with _server(options) as client:
            conversation = Conversation(client, options)
            if options.prompt is not None:
                text = sys.stdin.read() if options.prompt == "-" else options.prompt
                return _once(conversation, text)
            return _talk(conversation)
    except TokenSpeedError as error:
        print(f"tokenspeed chat: {error}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED


def _parser() -> Parser:
    reader = Parser("tokenspeed chat", "Talk to a running server, or to a model that is started for it.", "[-p TEXT]")
    reader.add_argument("-p", "--prompt", metavar="TEXT", help="answer once to standard output; - reads standard input")
    reader.add_argument(
        "--model", metavar="MODEL", help="name of a served model, or what to serve: a folder or a .gguf"
    )
    reader.add_argument("--socket", metavar="PATH", help="Unix socket of the server (default: the newest of yours)")
    reader.add_argument("--system", metavar="TEXT", help="system message")
    reader.add_argument("--max-tokens", type=whole(1, 2**31 - 1), metavar="N", help="longest reply")
    reader.add_argument("--temperature", type=float, metavar="T", help="0 is greedy")
    reader.add_argument("--seed", type=int, metavar="N", help="same seed, same reply")
    return reader


@contextlib.contextmanager
def _server(options: argparse.Namespace) -> Generator[Client, None, None]:
    """Yield a client of the server that `options` mean; start one if none runs."""
    running = Client(options.socket) if options.socket is not None else _running(options.model)
    if running is not None:
        _wait_until_loaded(running)
        yield running
        return
    if options.model is not None and not Path(options.model).exists():
        raise UserError(f"No running server of yours serves {options.model!r}, and no such file or folder exists.")
    with PrivateServer(options.model) as path:
        yield Client(path)


def _running(model: str | None) -> Client | None:
    """Return a client of the newest server that serves `model` (any, if None)."""
    for path in running_sockets():
        client = Client(path, timeout_s=10.0)
        with contextlib.suppress(TokenSpeedError):
            if model is None or client.models()[0]["id"] == model:
                return Client(path)
    return None


def _wait_until_loaded(client: Client) -> None:
    """Return when the server no longer loads its model; what else may be wrong, the first reply tells."""
    if _is_loading(client):
        print("Waiting for the server to load its model ...", file=sys.stderr)
    while _is_loading(client):
        time.sleep(LOOK_S)


def _is_loading(client: Client) -> bool:
    return bool(client.call("/health")[1]["status"] == "starting")


class Conversation:
    """The messages so far, and how to ask for the next one."""

    def __init__(self, client: Client, options: argparse.Namespace) -> None:
        named = {name: getattr(options, name) for name in ("max_tokens", "temperature", "seed")}
        self._settings = {name: value for name, value in named.items() if value is not None}
        self._client = client
        self._head: list[dict[str, Any]] = [{"role": "system", "content": options.system}] if options.system else []
        self._turns: list[dict[str, Any]] = []

    @property
    def model(self) -> str:
        """The name of the model that answers."""
        return str(self._client.models()[0]["id"])

    def reset(self) -> None:
        """Forget all turns."""
        self._turns.clear()

    def say(self, text: str) -> Generator[str, None, None]:
        """Yield the reply to `text` as it comes. What was yielded becomes part of the conversation."""
        asked = {"role": "user", "content": text}
        said: list[str] = []
        reply = self._client.chat([*self._head, *self._turns, asked], **self._settings)
        try:
            with contextlib.closing(reply):
                for piece in reply:
                    said.append(piece)
                    yield piece
        finally:
            if said:
                self._turns += [asked, {"role": "assistant", "content": "".join(said)}]


def _once(conversation: Conversation, text: str) -> int:
    _show(conversation.say(text))
    return 0


def _talk(conversation: Conversation) -> int:
    """Read and answer until the input ends."""
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401 - gives input() its line editing and history
    print(f"Talking to {conversation.model}. {HELP}", file=sys.stderr)
    while True:
        try:
            text = input("> ").strip()
        except EOFError:
            return 0
        except KeyboardInterrupt:
            print(f"\n{HELP}", file=sys.stderr)
            continue
        if text in ("/exit", "/quit"):
            return 0
        if text == "/reset":
            conversation.reset()
        elif text in ("/help", "/?"):
            print(HELP, file=sys.stderr)
        elif text:
            _answer(conversation, text)


def _answer(conversation: Conversation, text: str) -> None:
    """Show the reply; neither Ctrl-C nor an error ends the conversation."""
    reply = conversation.say(text)
    try:
        _show(reply)
    except KeyboardInterrupt:
        print("\n[stopped]", file=sys.stderr)
    except TokenSpeedError as error:
        print(f"\n[failed] {error}", file=sys.stderr)
    finally:
        reply.close()


def _show(reply: Iterator[str]) -> None:
    for piece in reply:
        sys.stdout.write(piece)
        sys.stdout.flush()
    print(flush=True)
