"""``veilwalk roster``: from cards to a signed roster and its successors, and what stands in the way."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from tests.helpers.cli import Cli

from veilwalk.node import Suite
from veilwalk.node.members import (
    load_root_public_key,
    load_roster,
    new_node_keys,
    new_root_key,
    read_roster_draft,
    rotate_node_keys,
)

NAMES = ("a", "b", "c", "d")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Cli) -> Path:
    """A root, four members with keys, and version 1 signed in roster.json."""
    monkeypatch.chdir(tmp_path)
    new_root_key(tmp_path / "root")
    for number, name in enumerate(NAMES):
        new_node_keys(tmp_path / name, node_id=name, address=f"h:{7100 + number}", suite=Suite.X25519)
    assert run(["roster", "make", *NAMES, "--graph", "ring:4", "--out", "roster.json"])[0] == 0
    assert run(["roster", "sign", "roster.json", "--root", "root"])[0] == 0
    return tmp_path


CHECK = ["roster", "check", "roster.json", "--root-public", "root/root.pub"]


def test_make_sign_check(place: Path, run: Cli) -> None:
    """What is drafted and signed is valid, and the table shows names, addresses and fingerprints."""
    code, out, err = run(CHECK)
    assert (code, err) == (0, "")
    assert out.rstrip().endswith("valid")
    roster = load_roster(place / "roster.json", load_root_public_key(place / "root" / "root.pub"), time.time())
    assert roster.neighbours("a") == ("b", "d")
    assert roster.expires - roster.created == 90 * 24 * 3600
    for text in (roster.digest.hex(), roster.run_id.hex(), "h:7103", roster.member("d").tls_spki_sha256.hex()):
        assert text in out


def test_a_draft_is_not_valid_before_it_is_signed(place: Path, run: Cli) -> None:
    """make signs nothing, and says so."""
    code, out, _ = run(["roster", "make", *NAMES, "--graph", "complete:4", "--run", "0f" * 16, "--out", "x"])
    assert code == 0
    assert "drafted, not signed" in out
    assert read_roster_draft(place / "x").run_id == b"\x0f" * 16
    code, _, err = run(["roster", "check", "x", "--root-public", "root/root.pub"])
    assert (code, "x.sig: No such file" in err) == (2, True)


def test_members_come_and_go(place: Path, run: Cli) -> None:
    """A changed roster names the one before it, and follows it."""
    new_node_keys(place / "e", node_id="e", address="h:7104", suite=Suite.X25519)
    (place / "net").write_text("a c\nc d\nd e\ne a\n")
    options = ["--previous", "roster.json", "--remove", "b", "--edges", "net", "--days", "7", "--out", "next.json"]
    assert run(["roster", "make", "e/card.json", *options])[0] == 0
    assert run(["roster", "sign", "next.json", "--root", "root", "--current", "roster.json"])[0] == 0
    check = ["roster", "check", "next.json", "--root-public", "root/root.pub", "--current", "roster.json"]
    assert run(check)[0] == 0
    assert read_roster_draft(place / "next.json").ids == ("a", "c", "d", "e")


def test_rotation_needs_everybody_s_new_card(place: Path, run: Cli) -> None:
    """Refused with old cards; with new ones it is the next epoch, and the old roster is then a rollback."""
    rotate = ["roster", "rotate", "roster.json", *NAMES, "--out", "next.json"]
    code, _, err = run(rotate)
    assert (code, "needs 1 and 2" in err) == (2, True)
    for name in NAMES:
        rotate_node_keys(place / name)
    assert run(rotate)[0] == 0
    assert run(["roster", "sign", "next.json", "--root", "root", "--current", "roster.json"])[0] == 0
    assert read_roster_draft(place / "next.json").epoch == 1
    code, _, err = run([*CHECK, "--current", "next.json"])
    assert (code, "version 1 is older than 2" in err) == (3, True)


def test_a_fork_is_not_signed(place: Path, run: Cli) -> None:
    """Two versions 2: the second is refused when the first is what members hold; and --current cannot be forgotten."""
    change = ["roster", "make", "--previous", "roster.json", "--graph", "complete:4"]
    for days, out in (("5", "two.json"), ("6", "other.json")):
        assert run([*change, "--days", days, "--out", out])[0] == 0
    code, _, err = run(["roster", "sign", "two.json", "--root", "root"])
    assert (code, "current = None" in err) == (2, True)
    assert run(["roster", "sign", "two.json", "--root", "root", "--current", "roster.json"])[0] == 0
    code, _, err = run(["roster", "sign", "other.json", "--root", "root", "--current", "two.json"])
    assert (code, "a second version 2" in err) == (3, True)
    assert not (place / "other.json.sig").exists()


def test_expired_and_forged_rosters_are_code_3(place: Path, run: Cli) -> None:
    """Each with its line."""
    assert run(["roster", "make", *NAMES, "--graph", "ring:4", "--days", "1e-5", "--out", "short"])[0] == 0
    assert run(["roster", "sign", "short", "--root", "root"])[0] == 0
    time.sleep(1.1)
    code, _, err = run(["roster", "check", "short", "--root-public", "root/root.pub"])
    assert (code, "expired" in err) == (3, True)
    new_root_key(place / "other")
    code, _, err = run(["roster", "check", "roster.json", "--root-public", "other/root.pub"])
    assert (code, "not signed by this root key" in err) == (3, True)


BAD: dict[str, tuple[list[str], int, str]] = {
    "no network": (["make", *NAMES, "--out", "x"], 2, "either --graph or --edges"),
    "two networks": (
        ["make", *NAMES, "--graph", "ring:4", "--edges", "n", "--out", "x"],
        2,
        "either --graph or --edges",
    ),
    "wrong size": (["make", *NAMES, "--graph", "ring:5", "--out", "x"], 2, "of 4 nodes, one for each member"),
    "bad spec": (["make", *NAMES, "--graph", "star:4", "--out", "x"], 2, "star"),
    "no cards": (["make", "--graph", "ring:4", "--out", "x"], 2, "needs members' cards"),
    "remove without previous": (["make", *NAMES, "--graph", "ring:4", "--remove", "a", "--out", "x"], 2, "nobody to"),
    "bad run": (["make", *NAMES, "--graph", "ring:4", "--run", "12", "--out", "x"], 2, "run id: must be 32"),
    "run with previous": (
        ["make", "--previous", "roster.json", "--run", "0f", "--graph", "ring:4", "--out", "x"],
        2,
        "for a first roster only",
    ),
    "bad days": (["make", *NAMES, "--graph", "ring:4", "--days", "0", "--out", "x"], 2, "days = 0"),
    "card missing": (["make", "nobody", "--graph", "ring:4", "--out", "x"], 2, "nobody: No such file"),
    "card twice": (["make", "a", "a", "--graph", "ring:4", "--out", "x"], 2, "a second card for a"),
    "card is a roster": (["make", "roster.json", "--graph", "ring:4", "--out", "x"], 2, "roster.json: "),
    "other suite": (
        ["make", "hybrid", "--previous", "roster.json", "--graph", "ring:5", "--out", "x"],
        2,
        "of suite 2",
    ),
    "rotate other suite": (["rotate", "roster.json", "hybrid", "--out", "x"], 2, "of suite 2"),
    "rotate no cards": (["rotate", "roster.json", "--out", "x"], 2, "no card of a"),
    "sign nothing": (["sign", "nothing", "--root", "root"], 2, "nothing: No such file"),
    "sign with a node's keys": (["sign", "roster.json", "--root", "a"], 2, "root.key: No such file"),
    "sign garbage": (["sign", "garbage", "--root", "root"], 2, "garbage: not JSON"),
    "check no root": (["check", "roster.json", "--root-public", "nothing"], 2, "nothing: No such file"),
    "check with garbage": (["check", "roster.json", "--root-public", "garbage"], 2, "64 lower-case"),
    "unwritable": (["make", *NAMES, "--graph", "ring:4", "--out", "garbage/x"], 4, "cannot write"),
    "no verb": ([], 2, ""),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_gets_one_line_and_its_code(case: str, place: Path, run: Cli) -> None:
    """Never a traceback, and no draft is left behind."""
    (place / "garbage").write_text("garbage")
    new_node_keys(place / "hybrid", node_id="hybrid", address="h:1")
    arguments, code, line = BAD[case]
    found, _, err = run(["roster", *arguments])
    assert found == code
    assert line in err
    assert err.count("\n") == (0 if case == "no verb" else 1)
    assert not (place / "x").exists()


def test_a_changed_draft_is_caught_by_its_keeper(place: Path, run: Cli) -> None:
    """A roster edited by hand is not canonical, or does not carry its signature any more."""
    content = json.loads((place / "roster.json").read_text())
    (place / "roster.json").write_text(json.dumps(content, indent=2))
    code, _, err = run(["roster", "sign", "roster.json", "--root", "root"])
    assert (code, "not canonical JSON" in err) == (2, True)
    code, _, _ = run(CHECK)
    assert code == 3
