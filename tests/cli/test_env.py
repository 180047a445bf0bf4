from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tokenspeed import __version__
from tokenspeed.cli import env


def test_text_and_json_tell_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    assert env.main([]) == 0
    text = capsys.readouterr().out
    assert env.main(["--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["tokenspeed"]["version"] == __version__
    for topic in ("tokenspeed", "python", "platform", "cpu", "memory", "torch", "packages"):
        assert f"{topic}:\n" in text
        assert all(isinstance(answer, str) and answer for answer in facts[topic].values())
    assert facts["packages"]["msgspec"][0].isdigit()
    assert facts["python"]["version"] in text


def test_torch_is_not_imported() -> None:
    code = "import sys; from tokenspeed.cli import main; main(['env']); sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)


def test_torch_build_is_read_from_its_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise SystemExit")
    (tmp_path / "torch" / "version.py").write_text("__version__ = '9.9+x'\ncuda: Optional[str] = '13.0'\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    assert env.collect()["torch"]["build"] == "version 9.9+x, cuda 13.0"


def test_what_cannot_be_answered_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> str:
        raise PermissionError

    monkeypatch.setattr(Path, "read_text", refuse)
    facts = env.collect()
    assert facts["cpu"]["model"] == facts["memory"]["total"] == env.UNKNOWN


def test_the_home_folder_is_not_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(Path(env.__file__).resolve().parents[2]))
    assert env.collect()["tokenspeed"]["folder"] == "~/tokenspeed"


def test_absent_things_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(env, "find_demo", lambda: None)
    monkeypatch.setattr(env, "PACKAGES", ("no-such-package",))
    facts = env.collect()
    assert facts["tokenspeed"]["demo model"] == "not installed"
    assert facts["packages"] == {"no-such-package": "not installed"}
