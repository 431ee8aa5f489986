"""``veilwalk keys``: what it makes, what it says, how it fails."""

from __future__ import annotations

import os
import shutil
import stat
from io import StringIO
from pathlib import Path

import pytest
from tests.helpers.cli import Cli

from veilwalk.node import Suite
from veilwalk.node.members import _keys, load_node_keys, load_root_key, load_root_public_key


@pytest.fixture(autouse=True)
def cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ARGON2_COST", "ARGON2_LEAST"):
        monkeypatch.setattr(_keys, name, {"iterations": 1, "lanes": 1, "memory_kib": 64})


@pytest.fixture
def password(tmp_path: Path) -> Path:
    path = tmp_path / "password"
    path.write_text("correct horse\n")
    path.chmod(0o600)
    return path


def test_a_node_gets_keys_and_a_card(tmp_path: Path, run: Cli) -> None:
    """Hybrid keys for thirteen weeks, named after the directory, with a fingerprint to compare by telephone."""
    out = tmp_path / "clinic-a"
    code, shown, err = run(["keys", "new", "--out", str(out), "--address", "10.0.0.1:7100"])
    assert (code, err) == (0, "")
    keys = load_node_keys(out)
    assert (keys.id, keys.suite, sorted(keys.kem)) == ("clinic-a", Suite.HYBRID, [*range(13)])
    assert keys.member.tls_spki_sha256.hex() in shown
    assert "not sealed (no password given)" in shown
    assert stat.S_IMODE(out.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in out.glob("*.key")} == {0o600}


def test_a_password_seals_the_files(tmp_path: Path, password: Path, run: Cli) -> None:
    """They open with it, and the password is never shown."""
    out = tmp_path / "keys"
    options = ["--id", "b", "--address", "b.example:1", "--suite", "x25519", "--epoch", "3", "--periods", "2"]
    code, shown, _ = run(["keys", "new", "--out", str(out), *options, "--password-file", str(password)])
    assert code == 0
    assert "sealed with the password" in shown
    assert "correct horse" not in shown
    keys = load_node_keys(out, password=b"correct horse")
    assert (keys.id, keys.suite, sorted(keys.kem)) == ("b", Suite.X25519, [3, 4])


def test_the_root_gets_one_key(tmp_path: Path, password: Path, run: Cli) -> None:
    """And prints the public half every member needs."""
    out = tmp_path / "root"
    code, shown, _ = run(["keys", "new", "--root", "--out", str(out), "--password-file", str(password)])
    assert code == 0
    public = load_root_public_key(out / "root.pub")
    assert public == load_root_key(out, password=b"correct horse").public_key()
    assert public.public_bytes_raw().hex() in shown


def test_rotation_makes_the_next_key(tmp_path: Path, password: Path, run: Cli) -> None:
    """With the password the files were sealed with."""
    out = tmp_path / "keys"
    sealed = ["--password-file", str(password)]
    run(["keys", "new", "--out", str(out), "--address", "h:1", "--suite", "x25519", "--periods", "2", *sealed])
    code, shown, _ = run(["keys", "rotate", str(out), "--periods", "1", *sealed])
    assert (code, "periods 0 to 2" in shown) == (0, True)
    assert sorted(load_node_keys(out, password=b"correct horse").kem) == [0, 1, 2]


def test_a_password_may_be_typed(tmp_path: Path, run: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new one twice, one that is known once; it is not shown."""
    asked: list[dict[str, object]] = []

    def typed(_words: str, **how: object) -> str:
        asked.append(how)
        return "correct horse"

    monkeypatch.setattr("sys.stdin", StringIO())
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("typer.prompt", typed)
    out = tmp_path / "keys"
    made = ["keys", "new", "--out", str(out), "--address", "h:1", "--periods", "2", "--password-file", "-"]
    assert run(made)[0] == 0
    assert run(["keys", "rotate", str(out), "--periods", "1", "--password-file", "-"])[0] == 0
    assert [how["confirmation_prompt"] for how in asked] == [True, False]
    assert all(how["hide_input"] for how in asked)
    assert sorted(load_node_keys(out, password=b"correct horse").kem) == [0, 1, 2]


BAD: dict[str, tuple[list[str], int, str]] = {
    "no address": (["new", "--out", "{tmp}/n"], 2, "--address is not given: must be host:port"),
    "bad address": (["new", "--out", "{tmp}/n", "--address", "nowhere"], 2, "must be host:port"),
    "bad name": (["new", "--out", "{tmp}/n", "--address", "h:1", "--id", "No Name"], 2, "member id 'No Name'"),
    "bad suite": (["new", "--out", "{tmp}/n", "--address", "h:1", "--suite", "rsa"], 2, "suite = 'rsa'"),
    "bad epoch": (["new", "--out", "{tmp}/n", "--address", "h:1", "--epoch", "-1"], 2, "epoch = -1"),
    "root with a name": (["new", "--root", "--out", "{tmp}/n", "--id", "x"], 2, "root = "),
    "password file missing": (["new", "--root", "--out", "{tmp}/n", "--password-file", "{tmp}/no"], 2, "No such file"),
    "password file loose": (["new", "--root", "--out", "{tmp}/n", "--password-file", "{tmp}/loose"], 4, "chmod 600"),
    "password empty": (["new", "--root", "--out", "{tmp}/n", "--password-file", "{tmp}/empty"], 2, "first line"),
    "directory loose": (["new", "--root", "--out", "{tmp}/open"], 4, "chmod 700"),
    "keys there": (["new", "--root", "--out", "{tmp}/root"], 4, "a key is never overwritten"),
    "rotate nothing": (["rotate", "{tmp}/no"], 2, "No such file"),
    "rotate the root": (["rotate", "{tmp}/root"], 2, "card.json: No such file"),
    "no verb": ([], 2, ""),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_gets_one_line_and_its_code(case: str, tmp_path: Path, run: Cli) -> None:
    """Never a traceback, never a half-made directory of keys."""
    (tmp_path / "loose").write_text("pw\n")
    (tmp_path / "loose").chmod(0o644)
    (tmp_path / "empty").touch(0o600)
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o755)
    run(["keys", "new", "--root", "--out", str(tmp_path / "root")])
    arguments, code, line = BAD[case]
    found, out, err = run(["keys", *(word.format(tmp=tmp_path) for word in arguments)])
    assert found == code
    assert line in err
    assert err.count("\n") == (0 if case == "no verb" else 1)
    assert ("Make and rotate keys" in out) == (case == "no verb")
    assert not (tmp_path / "n").exists()


def test_a_wrong_password_is_code_3(tmp_path: Path, password: Path, run: Cli) -> None:
    """And a missing one is code 2."""
    out = tmp_path / "keys"
    made = ["keys", "new", "--out", str(out), "--address", "h:1", "--suite", "x25519", "--periods", "2"]
    run([*made, "--password-file", str(password)])
    assert run(["keys", "rotate", str(out)])[0] == 2
    password.write_text("wrong horse\n")
    code, _, err = run(["keys", "rotate", str(out), "--password-file", str(password)])
    assert code == 3
    assert "wrong password, or the file was changed" in err


def _interrupt_at(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Have the so manieth sync of a file end as by Ctrl-C."""
    calls = iter(range(100))
    sync = os.fsync

    def stops(handle: int) -> None:
        if next(calls) == number:
            raise KeyboardInterrupt
        sync(handle)

    monkeypatch.setattr(os, "fsync", stops)


@pytest.mark.parametrize("number", range(2))
def test_a_root_key_whose_making_was_interrupted_is_made_anew(
    number: int, tmp_path: Path, run: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At whichever file: the same command again, and both halves belong together."""
    made = ["keys", "new", "--root", "--out", str(tmp_path / "root")]
    with monkeypatch.context() as patched:
        _interrupt_at(patched, number)
        assert run(made)[0] == 130
    assert not list(tmp_path.glob("root/*.key"))
    assert run(made)[0] == 0
    assert load_root_public_key(tmp_path / "root" / "root.pub") == load_root_key(tmp_path / "root").public_key()
    # A second time nothing is touched.
    before = (tmp_path / "root" / "root.pub").read_bytes()
    assert run(made)[0] == 4
    assert (tmp_path / "root" / "root.pub").read_bytes() == before


@pytest.mark.parametrize("number", range(4))
def test_keys_whose_making_was_interrupted_say_what_to_do(
    number: int, tmp_path: Path, run: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No half a file is left; what cannot be used says that nobody has it yet, whoever meets it."""
    out = tmp_path / "keys"
    made = ["keys", "new", "--out", str(out), "--address", "h:1", "--suite", "x25519", "--periods", "2"]
    with monkeypatch.context() as patched:
        _interrupt_at(patched, number)
        assert run(made)[0] == 130
    if number:
        for again in (made, ["keys", "rotate", str(out)]):
            code, _, err = run(again)
            assert (code, "nobody has them yet; remove the directory and make them anew" in err) == (2, True)
        shutil.rmtree(out)
    assert run(made)[0] == 0
    assert sorted(load_node_keys(out).kem) == [0, 1]
