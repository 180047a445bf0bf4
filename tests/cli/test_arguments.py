from __future__ import annotations

import subprocess
import sys

from tokenspeed.cli.sources import read_settings
from tokenspeed.config import Secret, ServerConfig

HIDE = """
import sys
from tokenspeed.cli.arguments import hide_argument
assert hide_argument("sesame")
print(open("/proc/self/cmdline").read().split("\\0")[3:])
"""


def test_a_key_is_no_longer_seen_in_the_command_line() -> None:
    words = [sys.executable, "-c", HIDE, "--api-key", "sesame", "--api-key=sesame", "sesames", "open-sesame"]
    shown = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert shown.strip() == str(["--api-key", "******", "--api-key=******", "sesames", "open-sesame", ""])


def test_keys_come_as_secrets_and_those_of_the_command_line_are_known() -> None:
    settings = read_settings(["--api-key", "ann:one", "--api-key=two", "--admin-key", "root", "--allowed-hosts", "a.b"])
    config = settings.config(ServerConfig)
    assert config.api_keys == (Secret("ann:one"), Secret("two"))
    assert config.admin_key == Secret("root")
    assert config.allowed_hosts == ("a.b",)
    assert list(settings.secrets()) == ["ann:one", "two", "root"]
    assert list(read_settings([]).secrets()) == []
