"""``veilwalk roster``: from cards to a signed roster and its successors, and what stands in the way."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from tests.helpers.cli import Cli

from veilwalk.node import Suite
from veilwalk.node.members import Roster, load_root_public_key, new_node_keys, new_root_key, rotate_node_keys

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
    roster = Roster.load(place / "roster.json", load_root_public_key(place / "root" / "root.pub"), time.time())
    assert roster.neighbours("a") == ("b", "d")
    assert roster.expires - roster.created == 90 * 24 * 3600
    for text in (roster.digest.hex(), roster.network.hex(), "h:7103", roster.member("d").tls_spki_sha256.hex()):
        assert text in out


def test_a_draft_is_not_valid_before_it_is_signed(place: Path, run: Cli) -> None:
    """make signs nothing, and says so."""
    code, out, _ = run(["roster", "make", *NAMES, "--graph", "complete:4", "--network", "0f" * 16, "--out", "x"])
    assert code == 0
    assert "drafted, not signed" in out
    assert Roster.read_draft(place / "x").network == b"\x0f" * 16
    code, _, err = run(["roster", "check", "x", "--root-public", "root/root.pub"])
    assert (code, "x.sig: No such file" in err) == (2, True)


def test_links_change(place: Path, run: Cli) -> None:
    """A changed roster names the one before it, and follows it; renew takes other links, too."""
    (place / "net").write_text("a c\nc b\nb d\nd a\n")
    assert run(["roster", "renew", "--edges", "net", "--days", "7"])[0] == 0
    assert run(["roster", "sign", "next.json", "--root", "root", "--current", "roster.json"])[0] == 0
    check = ["roster", "check", "next.json", "--root-public", "root/root.pub", "--current", "roster.json"]
    assert run(check)[0] == 0
    assert Roster.read_draft(place / "next.json").neighbours("a") == ("c", "d")


def test_new_cards_of_all_bring_further_periods(place: Path, run: Cli) -> None:
    """The periods end with the last that all have a key for, who holds them up is told, and strangers are passed by."""
    rotate_node_keys(place / "a", periods=2)
    code, out, _ = run(["roster", "renew", "a", "--out", "same.json"])
    assert (code, "no card: b, c, d" in out) == (0, True)
    assert list(Roster.read_draft(place / "same.json").key_epochs) == [0, 1]
    for name in NAMES[1:]:
        rotate_node_keys(place / name, periods=3)
    new_node_keys(place / "e", node_id="e", address="h:7104", suite=Suite.X25519)
    code, out, _ = run(["roster", "renew", *NAMES, "e"])
    assert (code, "passed over, no members: e" in out, "no card" in out) == (0, True, False)
    assert run(["roster", "sign", "next.json", "--root", "root", "--current", "roster.json"])[0] == 0
    assert list(Roster.read_draft(place / "next.json").key_epochs) == [0, 1, 2, 3]
    code, _, err = run([*CHECK, "--current", "next.json"])
    assert (code, "version 1 is older than 2" in err) == (3, True)


def test_a_fork_is_not_signed(place: Path, run: Cli) -> None:
    """Two versions 2: the second is refused when the first is what members hold; and --current cannot be forgotten."""
    change = ["roster", "renew"]
    for days, out in (("5", "two.json"), ("6", "other.json")):
        assert run([*change, "--days", days, "--out", out])[0] == 0
    code, _, err = run(["roster", "sign", "two.json", "--root", "root"])
    assert (code, "--current is not given" in err) == (2, True)
    assert run(["roster", "sign", "two.json", "--root", "root", "--current", "roster.json"])[0] == 0
    code, _, err = run(["roster", "sign", "other.json", "--root", "root", "--current", "two.json"])
    assert (code, "a second version 2" in err) == (3, True)
    assert not (place / "other.json.sig").exists()


def test_expired_and_forged_rosters_are_code_3(place: Path, run: Cli) -> None:
    """Each with its line."""
    assert run(["roster", "make", *NAMES, "--graph", "ring:4", "--days", "5e-5", "--out", "short"])[0] == 0
    assert run(["roster", "sign", "short", "--root", "root"])[0] == 0
    # Long enough to be signed on a busy machine.
    time.sleep(5e-5 * 24 * 3600 + 1.1)
    code, _, err = run(["roster", "check", "short", "--root-public", "root/root.pub"])
    assert (code, "expired" in err) == (3, True)
    new_root_key(place / "other")
    code, _, err = run(["roster", "check", "roster.json", "--root-public", "other/root.pub"])
    assert (code, "not signed by this root key" in err) == (3, True)


BAD: dict[str, tuple[list[str], int, str]] = {
    "no network": (["make", *NAMES, "--out", "x"], 2, "one of --graph, --edges and --overlay"),
    "two networks": (
        ["make", *NAMES, "--graph", "ring:4", "--edges", "n", "--out", "x"],
        2,
        "one of --graph, --edges and --overlay",
    ),
    "wrong size": (["make", *NAMES, "--graph", "ring:5", "--out", "x"], 2, "of 4 nodes, one for each member"),
    "bad spec": (["make", *NAMES, "--graph", "star:4", "--out", "x"], 2, "star"),
    "no cards": (["make", "--graph", "ring:4", "--out", "x"], 2, "CARD is not given"),
    "bad id": (["make", *NAMES, "--graph", "ring:4", "--network", "12", "--out", "x"], 2, "network id: must be 32"),
    "bad days": (["make", *NAMES, "--graph", "ring:4", "--days", "0", "--out", "x"], 2, "days = 0"),
    "card missing": (["make", "nobody", "--graph", "ring:4", "--out", "x"], 2, "nobody: No such file"),
    "card twice": (["make", "a", "a", "--graph", "ring:4", "--out", "x"], 2, "a second card for a"),
    "card is a roster": (["make", "roster.json", "--graph", "ring:4", "--out", "x"], 2, "roster.json: "),
    "other suite": (["add", "hybrid", "--to", "a", "--out", "x"], 2, "of suite 2"),
    "renew other suite": (["renew", "hybrid", "--out", "x"], 2, "of suite 2"),
    "bad period": (["make", *NAMES, "--graph", "ring:4", "--period", "0", "--out", "x"], 2, "--period = 0"),
    "rotate": (["rotate", "roster.json", *NAMES], 2, "rotate is gone: roster renew CARD... brings keys"),
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


def signed(run: Cli) -> None:
    """Sign what was drafted, as the draft itself says, and put it in the place of the one before."""
    assert run(["roster", "sign", "next.json", "--root", "root", "--current", "roster.json"])[0] == 0
    assert run(["roster", "check", "next.json", "--root-public", "root/root.pub", "--current", "roster.json"])[0] == 0
    for name in ("next.json", "next.json.sig"):
        Path(name).rename(name.replace("next", "roster"))


def test_one_command_adds_a_member_and_one_removes_it(place: Path, run: Cli) -> None:
    """Neither needs the edges of the others; the hint for signing works as it is printed."""
    assert run(["keys", "new", "--id", "e", "--address", "h:7104", "--suite", "x25519", "--out", "e"])[0] == 0
    code, _, err = run(["roster", "add", "e/e.json"])
    assert (code, "--to is not given: must be the members that e is to be next to" in err) == (2, True)
    code, out, _ = run(["roster", "add", "e/e.json", "--to", "a,c", "--days", "7"])
    assert code == 0
    # The keys of this test have no password; the page's have one.
    (place / "password").write_text("correct horse\n")
    (place / "password").chmod(0o600)
    hint = out.rstrip().rpartition("next: ")[2].replace("DIR", "root").replace("FILE", "password").split()
    assert hint[:2] == ["veilwalk", "roster"]
    assert run(hint[1:])[0] == 0
    signed(run)
    assert Roster.read_draft(place / "roster.json").neighbours("e") == ("a", "c")
    assert Roster.read_draft(place / "roster.json").neighbours("b") == ("a", "c")
    code, _, err = run(["roster", "remove", "a", "c", "--link", "b,d"])
    assert (code, "falls apart" in err) == (2, True)
    assert run(["roster", "remove", "a", "c", "--link", "b,d", "--link", "d,e"])[0] == 0
    signed(run)
    last = Roster.read_draft(place / "roster.json")
    assert (last.version, last.ids, last.edges) == (3, ("b", "d", "e"), (("b", "d"), ("d", "e")))


def test_new_keys_keep_their_neighbours(place: Path, run: Cli) -> None:
    new_node_keys(place / "again", node_id="b", address="h:7109", suite=Suite.X25519)
    before = Roster.read_draft(place / "roster.json").member("b")
    code, out, _ = run(["roster", "add", "again", "--replace", "b"])
    assert code == 0
    draft = Roster.read_draft(place / "next.json")
    assert (draft.member("b").address, draft.neighbours("b")) == ("h:7109", ("a", "c"))
    # Whoever signs sees which key and which address it replaces, and signs after a look at them.
    for words in (out, run(["roster", "sign", "next.json", "--root", "root", "--current", "roster.json"])[1]):
        shown = "".join(words.split())
        for value in (before.fingerprint, draft.member("b").fingerprint, before.address, "h:7109"):
            assert value in shown
        assert "compare every new fingerprint" in words


def test_finding_7_no_card_takes_the_place_of_a_member_unasked(place: Path, run: Cli) -> None:
    """A card made anywhere with a member's name was taken, key and address, without a word."""
    new_node_keys(place / "again", node_id="b", address="h:7109", suite=Suite.X25519)
    code, _, err = run(["roster", "add", "again"])
    assert (code, "--replace is not given: must be given as b" in err) == (2, True), err
    assert not Path("next.json").exists()
    code, _, err = run(["roster", "add", "again", "--replace", "b", "--to", "a,c"])
    assert (code, "--to = 'a,c': must be left out" in err) == (2, True), err
    code, _, err = run(["roster", "add", "again", "--replace", "c"])
    assert (code, "--replace" in err) == (2, True), err


def test_changes_are_shown_before_they_are_signed(place: Path, run: Cli) -> None:
    """Edges, epochs, who comes and goes: what the keeper signs is what it saw."""
    code, out, _ = run(["roster", "remove", "b", "--link", "a,c"])
    assert (code, "b leaves" in out, "a - b" in out, "a - c" in out) == (0, True, True, True)
    words = run(["roster", "sign", "next.json", "--root", "root", "--current", "roster.json"])[1]
    assert words.count("b leaves") == 1
    assert "as before" in run(["roster", "renew", "--out", "same.json"])[1]


def test_a_roster_is_renewed_before_it_ends(place: Path, run: Cli) -> None:
    code, _, err = run(["roster", "renew", "--out", "roster.json"])
    assert (code, "members still hold the one before" in err) == (2, True)
    assert run(["roster", "renew", "--days", "30"])[0] == 0
    before, after = (Roster.read_draft(place / name) for name in ("roster.json", "next.json"))
    assert (after.members, after.edges, after.epoch) == (before.members, before.edges, before.epoch)
    assert after.expires - after.created == 30 * 24 * 3600
    signed(run)


def test_edges_are_printed_for_firewalls_and_written_for_others(place: Path, run: Cli) -> None:
    code, out, _ = run(["roster", "edges", "--of", "a"])
    assert code == 0
    assert [line.split() for line in out.splitlines()[2:4]] == [["a", "b", "h:7101"], ["d", "h:7103"]]
    assert run.json(["roster", "edges"])["c"] == {"b": "h:7101", "d": "h:7103"}
    assert run(["roster", "edges", "--out", "network.csv"])[0] == 0
    assert run(["roster", "make", *NAMES, "--edges", "network.csv", "--out", "same.json"])[0] == 0
    assert Roster.read_draft(place / "same.json").edges == Roster.read_draft(place / "roster.json").edges
    code, _, err = run(["roster", "edges", "--of", "z"])
    assert (code, "--of = 'z': must be among the members" in err) == (2, True)


def test_a_law_is_designed_for_a_roster_by_names(place: Path, run: Cli) -> None:
    """No numbering by hand: rows of the law carry the members' names."""
    import numpy as np

    for name, port in (("e", 4), ("f", 5)):
        new_node_keys(place / name, node_id=name, address=f"h:{7100 + port}", suite=Suite.X25519)
    six = [*NAMES, "e", "f"]
    assert run(["roster", "make", *six, "--graph", "ring:6", "--out", "r.json"])[0] == 0
    code, out, err = run(["design", "--roster", "r.json", "--law", "uniform-node", "--out", "l.npz"])
    assert (code, "uniform-node" in out) == (0, True), err
    with np.load(place / "l.npz") as law:
        assert law["labels"].tolist() == six
    code, _, err = run(["design", "--roster", "r.json", "--graph", "ring:6"])
    assert (code, "not both" in err) == (2, True)


def test_cards_of_all_members_fit_into_one_folder(place: Path, run: Cli) -> None:
    """Each is called by its member, in a folder of its own unless told otherwise; also after a rotation."""
    (place / "cards").mkdir()
    for number in (1, 2):
        name, address = f"clinic-{number}", f"h:71{number}0"
        code, out, _ = run(["keys", "new", "--id", name, "--address", address, "--suite", "x25519"])
        assert code == 0
        assert f"send keys/{name}/{name}.json" in out
        assert run(["keys", "rotate", f"keys/{name}"])[0] == 0
        (place / "cards" / f"{name}.json").write_bytes((place / "keys" / name / f"{name}.json").read_bytes())
    cards = sorted(map(str, (place / "cards").glob("*.json")))
    (place / "pair").write_text("clinic-1 clinic-2\n")
    assert run(["roster", "make", *cards, "--edges", "pair", "--out", "two.json"])[0] == 0
    # A card has all keys that are held; the first roster begins with the oldest that all members have.
    assert Roster.read_draft(place / "two.json").epoch == 0
    code, _, err = run(["keys", "new", "--address", "h:1"])
    assert (code, "--id is not given" in err) == (2, True)


def test_another_root_signs_no_successor(place: Path, run: Cli) -> None:
    """What members hold is another root's: said when it is signed, not by every node when it has been handed out."""
    new_root_key(place / "other")
    assert run(["roster", "renew"])[0] == 0
    sign = ["roster", "sign", "next.json", "--current", "roster.json"]
    code, _, err = run([*sign, "--root", "other"])
    assert (code, err) == (3, "veilwalk: roster.json: not signed by this root key\n")
    assert not Path("next.json.sig").exists()
    assert run([*sign, "--root", "root"])[0] == 0


def test_no_version_follows_itself(place: Path, run: Cli) -> None:
    """With the draft itself as what members hold nothing would be compared."""
    assert run(["roster", "renew"])[0] == 0
    assert run(["roster", "sign", "next.json", "--root", "root", "--current", "roster.json"])[0] == 0
    code, _, err = run(["roster", "sign", "next.json", "--root", "root", "--current", "next.json"])
    assert (code, "--current = 'next.json': must be the version before 2" in err) == (2, True)


def test_what_is_signed_is_not_drafted_over(place: Path, run: Cli) -> None:
    """Neither what members hold nor a successor: there would be a second. A draft may be, and that is said."""
    before = Path("roster.json").read_bytes()
    code, _, err = run(["roster", "make", *NAMES, "--graph", "complete:4", "--out", "roster.json"])
    assert (code, "--out = 'roster.json': must be another file: a signed one is there" in err) == (2, True)
    assert Path("roster.json").read_bytes() == before
    assert "is replaced" not in run(["roster", "remove", "b", "--link", "a,c"])[1]
    assert "what was in next.json is replaced: a change" in run(["roster", "renew"])[1]
    assert run(["roster", "sign", "next.json", "--root", "root", "--current", "roster.json"])[0] == 0
    assert run(["roster", "renew"])[0] == 2


def test_edges_of_several_and_links_of_who_stays(place: Path, run: Cli) -> None:
    """Every edge of each that is named, in the file too; nobody is joined to who leaves."""
    assert run(["roster", "edges", "--of", "a,b", "--out", "edges.csv"])[0] == 0
    assert Path("edges.csv").read_text() == "source,target\na,b\na,d\nb,c\n"
    code, _, err = run(["roster", "remove", "b", "--link", "b,d"])
    assert (code, err) == (2, "veilwalk: --link = 'b,d': must be two members that stay, A,B\n")
    code, _, err = run(["roster", "add", "a", "--to", "c,a"])
    assert (code, "--to = 'c,a': must be left out" in err) == (2, True)


def test_two_members_cannot_have_one_address(place: Path, run: Cli) -> None:
    """As by a command that was called again with another name only: neither would ever be reached as itself."""
    new_node_keys(place / "e", node_id="e", address="h:7101", suite=Suite.X25519)
    code, _, err = run(["roster", "add", "e", "--to", "a"])
    assert (code, err) == (2, "veilwalk: b and e have the same address, h:7101: must differ\n")
    assert not Path("next.json").exists()
