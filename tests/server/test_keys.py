from __future__ import annotations

import hmac
import logging
from pathlib import Path

import pytest

from tokenspeed.config import KEY_VARIABLES, Secret, ServerConfig, child_environment
from tokenspeed.errors import StartError
from tokenspeed.server.keys import Keyring


def ring(*keys: str, path: Path | None = None) -> Keyring:
    return Keyring(tuple(map(Secret, keys)), str(path) if path else None)


def test_keys_of_one_name_are_one_tenant_and_others_are_not() -> None:
    keys = ring("a:one", "a:two", "three", "four")
    tenants = [keys.tenant(key) for key in (b"one", b"two", b"three", b"four")]
    assert tenants[0] == tenants[1] == "name:a"
    assert len(set(tenants)) == 3
    assert "three" not in str(tenants[2])
    assert [keys.tenant(key) for key in (b"", b"thre", b"a:one", b"a", "é".encode())] == [None] * 5
    assert keys
    assert not Keyring()


def test_every_key_is_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[int, int]] = []
    real = hmac.compare_digest

    def counted(left: bytes, right: bytes) -> bool:
        compared.append((len(left), len(right)))
        return real(left, right)

    monkeypatch.setattr(hmac, "compare_digest", counted)
    assert ring("one", "two", "three").tenant(b"one") is not None
    assert compared == [(32, 32)] * 3


def test_a_file_has_comments_and_names_and_is_read_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "keys"
    path.write_text("# people\nann:k1\n\n  k2  \n")
    keys = ring("given", path=path)
    assert keys.tenant(b"k1") == "name:ann"
    path.write_text("ann:k3\n")
    caplog.set_level(logging.INFO)
    keys.reload()
    assert (keys.tenant(b"k1"), keys.tenant(b"k3")) == (None, "name:ann")
    assert keys.tenant(b"given") is not None
    path.write_text("two words\n")
    keys.reload()
    path.unlink()
    keys.reload()
    assert keys.tenant(b"k3") == "name:ann"
    assert "two words" not in caplog.text
    assert caplog.text.count("the keys stay as they are") == 2


@pytest.mark.parametrize("wrong", ["", "two words", "é", "name:", "a" * 513, "tab\tkey"])
def test_what_is_no_key_is_refused_without_showing_it(wrong: str) -> None:
    with pytest.raises(StartError) as caught:
        ring(wrong)
    assert not wrong or wrong not in caught.value.message


@pytest.mark.parametrize(("text", "said"), [(None, "cannot be read"), ("# none\n", "has no key"), ("ü\n", "not plain")])
def test_a_file_without_keys_does_not_start(tmp_path: Path, text: str | None, said: str) -> None:
    if text is not None:
        (tmp_path / "keys").write_text(text)
    with pytest.raises(StartError, match=said):
        ring(path=tmp_path / "keys")


def test_a_key_is_not_shown_and_stays_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in KEY_VARIABLES:
        monkeypatch.setenv(variable, "sesame")
    assert "sesame" not in str(child_environment([]))
    config = ServerConfig(api_keys=(Secret("sesame"),), admin_key=Secret("sesame"))
    assert "sesame" not in f"{config} {config!r} {config.access} {Secret('sesame')}"
