"""`tools/doctor` on machines that lack something; minimal_root.sh does the same to a whole system."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
TOOLS = ["sh", "dash", "bash", "env", "uname", "id", "grep", "cat", "ls", "readlink", "mktemp", "mkdir", "rm", "rmdir"]
TOOLS += ["df", "dirname", "head", "tail", "make", "apt-get"]


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """Return a folder of programs that is the whole PATH of a machine that lacks nothing."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in [*TOOLS, "c++", "as", "ld"]:
        found = shutil.which(name)
        if found:
            (programs / name).symlink_to(found)
    program(programs / "python3", 'exec "$REAL_PYTHON" "$@"')
    return programs


def program(path: Path, text: str) -> None:
    """Put a shell script at `path`, in place of whatever is there."""
    path.unlink(missing_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def doctor(machine: Path, *arguments: str, **environment: str) -> list[str]:
    """Return the findings of the doctor on that machine; its exit status must agree with them."""
    base = os.path.realpath(os.path.join(sys.base_prefix, "bin", "python3"))
    done = subprocess.run(
        [str(machine / "sh"), str(REPOSITORY / "tools" / "doctor"), *arguments],
        env={"PATH": str(machine), "REAL_PYTHON": base, "HOME": str(machine), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    lines = done.stdout.splitlines()
    assert done.returncode == (1 if lines else 0), done
    if lines and "TokenSpeed runs on Linux" not in lines[0]:
        assert "to mend, then run the same command again" in lines.pop()
    return lines


def test_a_machine_that_lacks_nothing(machine: Path) -> None:
    assert doctor(machine) == []
    begun = time.monotonic()
    assert doctor(machine) == []
    assert time.monotonic() - begun < 1.0


def test_no_compiler(machine: Path) -> None:
    (machine / "c++").unlink()
    (finding,) = doctor(machine)
    assert "no C++ compiler is on the PATH" in finding
    assert "apt-get install -y g++" in finding


def test_a_compiler_that_fails(machine: Path) -> None:
    program(machine / "c++", "echo 'c++: error: unknown argument -std=c++20' >&2; exit 1")
    (finding,) = doctor(machine)
    assert "ten-line C++20 program (c++: error: unknown argument -std=c++20)" in finding


def test_the_answer_of_another_compiler_is_not_kept(machine: Path) -> None:
    assert doctor(machine) == []
    program(machine / "c++", "exit 1")
    assert len(doctor(machine)) == 1


def test_no_python(machine: Path) -> None:
    (machine / "python3").unlink()
    (finding,) = doctor(machine)
    assert "python3 is not on the PATH, 3.11 or newer is needed: " in finding


def test_an_old_python(machine: Path) -> None:
    program(machine / "python3", 'case "$*" in *probe*) echo "old 3.9.2" ;; *) exit 1 ;; esac')
    (finding,) = doctor(machine)
    assert "is Python 3.9.2, 3.11 or newer is needed" in finding


def test_a_python_that_crashes(machine: Path) -> None:
    program(machine / "python3", "echo 'error while loading shared libraries' >&2; exit 127")
    (finding,) = doctor(machine)
    assert "does not run (error while loading shared libraries)" in finding


def test_a_newer_python_beside_an_old_one_is_taken(machine: Path) -> None:
    shutil.copy(machine / "python3", machine / "python3.11")
    program(machine / "python3", 'case "$*" in *probe*) echo "old 3.9.2" ;; *) exit 1 ;; esac')
    assert doctor(machine) == []


def test_no_make_on_fedora(machine: Path) -> None:
    (machine / "make").unlink()
    (machine / "apt-get").unlink(missing_ok=True)
    program(machine / "dnf", "")
    (finding,) = doctor(machine)
    assert finding.endswith("dnf install -y make")


@pytest.mark.parametrize(
    ("system", "way"), [("Darwin", "Linux container or virtual machine"), ("MINGW64_NT-10.0", "WSL2")]
)
def test_other_systems(machine: Path, system: str, way: str) -> None:
    program(machine / "uname", f"echo {system}")
    (finding,) = doctor(machine)
    assert f"this is {system}" in finding
    assert way in finding


def test_a_port_in_use_names_its_holder(machine: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        (finding,) = doctor(machine, "--serve", "127.0.0.1", str(port))
    assert f"port {port} on 127.0.0.1 is in use by " in finding
    assert f"(pid {os.getpid()})" in finding


@pytest.mark.parametrize("port", ["0x50", "70000", "-1"])
def test_a_port_that_is_none(machine: Path, port: str) -> None:
    (finding,) = doctor(machine, "--serve", "127.0.0.1", port)
    assert "is not a port number" in finding


def test_a_host_that_is_none(machine: Path) -> None:
    (finding,) = doctor(machine, "--serve", "256.0.0.1", "8000")
    assert "on 256.0.0.1 cannot be" in finding
