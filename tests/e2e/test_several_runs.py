"""The how-to page of several runs, followed: a second run is a second node, with keys, port and state of its own."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from tests.helpers.cli import Cli

from veilwalk.node.cluster import free_ports

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "operate-nodes.md").read_text().partition("## Several runs")[2]
MEMBERS = [f"clinic-{letter}{number}" for letter in "abc" for number in (1, 2)]


def read_commands() -> list[str]:
    """The page's commands, in its order; a line that ends in a backslash goes on."""
    lines = "\n".join(re.findall(r"^    (.*)$", PAGE, re.MULTILINE)).replace("\\\n", " ")
    return [line for line in lines.splitlines() if line.startswith("veilwalk ")]


def test_the_page_of_several_runs_can_be_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every command as it stands there, for six members; then the settings of one of them."""
    run = Cli(capsys)
    monkeypatch.chdir(tmp_path)
    Path("password").write_text("correct horse\n")
    Path("password").chmod(0o600)
    Path("xray").mkdir()
    new_keys, *keepers, check = read_commands()
    assert run(["keys", "new", "--root", "--password-file", "password"])[0] == 0
    for port, member in zip(free_ports(len(MEMBERS)), MEMBERS, strict=True):
        own = new_keys.replace("clinic-a1", member).replace("xray-a1", f"xray-{member[-2:]}")
        words = shlex.split(own.replace("a.example.org:7201", f"127.0.0.1:{port}"))
        assert run(words[1:])[0] == 0
        (card,) = Path("keys", f"xray-{member[-2:]}").glob("clinic-*.json")
        card.rename(Path("xray", card.name))
    for command in keepers:
        words = [name for word in shlex.split(command)[1:] for name in sorted(map(str, Path().glob(word))) or [word]]
        # The trial of a busy machine is not what is tried here.
        words += ["--dwell", "0.5"] if words[:2] == ["node", "manifest"] else []
        code, out, err = run(words)
        assert code == 0, (command, out, err)
    Path("root.pub").write_bytes(Path("root/root.pub").read_bytes())
    rng = np.random.default_rng(1)
    np.savez("xray-a1.npz", features=rng.random((20, 64), dtype=np.float32), labels=rng.integers(10, size=20))
    Path("xray-a1.npz").chmod(0o600)
    settings = re.findall(r"^    (\w+ = .*)$", PAGE, re.MULTILINE)
    Path("xray-a1.toml").write_text("\n".join(settings) + "\n")
    code, out, err = run(shlex.split(check)[1:])
    assert (code, "fails" in out) == (0, False), out + err
    assert "systemctl enable --now veilwalk-node@xray-a1" in PAGE
