"""``veilwalk roster`` on a secret overlay: from cards to a dealt roster, its changes, and what it refuses."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.helpers.cli import Cli

from veilwalk.node import Suite
from veilwalk.node.members import Deal, Roster, deal_path, load_node_keys, new_node_keys, new_root_key

NAMES = tuple("abcdefgh")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Cli) -> Path:
    """A root, eight members with keys for three periods, and version 1 of a dealt roster, signed."""
    monkeypatch.chdir(tmp_path)
    new_root_key(tmp_path / "root")
    for number, name in enumerate(NAMES):
        make_keys(tmp_path, name, number)
    code, out, _ = run(["roster", "make", *NAMES, "--overlay", "3", "--period", "24"])
    assert code == 0
    assert "0 to 2, 24 h each" in out
    assert run(["roster", "sign", "roster.json", "--root", "root"])[0] == 0
    return tmp_path


def make_keys(folder: Path, name: str, number: int) -> None:
    new_node_keys(folder / name, node_id=name, address=f"host-{name}:{7100 + number}", suite=Suite.X25519, periods=3)


def sign(run: Cli) -> str:
    """Sign the next roster and put it in the place of the one before, with the dealer's part."""
    code, out, err = run(["roster", "sign", "next.json", "--root", "root", "--current", "roster.json"])
    assert (code, err) == (0, "")
    for suffix in ("", ".sig", ".deal"):
        Path(f"next.json{suffix}").replace(f"roster.json{suffix}")
    return out


def near(name: str) -> tuple[str, ...]:
    return Roster.read_draft(Path("roster.json")).open_row(name, load_node_keys(Path(name)).roster_key).neighbours(name)


def test_a_dealt_roster_is_valid_and_shows_no_link(place: Path, run: Cli) -> None:
    """Neither in the file nor in what is printed; the dealer's part does, and only its owner reads it."""
    code, out, _ = run(["roster", "check", "roster.json", "--root-public", "root/root.pub"])
    assert (code, out.rstrip().endswith("valid")) == (0, True)
    assert "host-" not in out + (place / "roster.json").read_text()
    assert "host-a:7100" in (place / "roster.json.deal").read_text()
    assert (place / "roster.json.deal").stat().st_mode & 0o777 == 0o600
    assert all(len(near(name)) == 3 for name in NAMES)


def test_one_comes_another_leaves_and_all_bring_new_keys(place: Path, run: Cli) -> None:
    """Nobody is given another neighbour for the one that left, which has its place back with the next version."""
    before = {name: near(name) for name in NAMES}
    assert run(["roster", "deal", "--remove", "d"])[0] == 0
    out = sign(run)
    assert "d leaves" in out
    assert {name: near(name) for name in NAMES if name != "d"} == {
        name: tuple(other for other in others if other != "d") for name, others in before.items() if name != "d"
    }
    make_keys(place, "i", 9)
    code, _, err = run(["roster", "deal", "i"])
    assert (code, err) == (0, "")
    for name in NAMES:
        assert run(["keys", "rotate", name, "--periods", "2"])[0] == 0
    assert run(["roster", "deal", *NAMES])[0] == 0
    sign(run)
    assert {name: near(name) for name in NAMES} == before
    roster = Roster.read_draft(place / "roster.json")
    assert (roster.version, list(roster.key_epochs)) == (3, [0, 1, 2, 3, 4])
    code, _, err = run(["roster", "deal", "i"])
    assert (code, "i has no key for period 3, in a network with those of 0 to 4" in err) == (2, True)


def test_a_lost_machine_gets_its_place_by_name_alone(place: Path, run: Cli) -> None:
    """Keys made anew: refused without --replace, and with it next to the same members."""
    before = near("c")
    shutil.rmtree(place / "c")
    make_keys(place, "c", 12)
    code, _, err = run(["roster", "deal", "c"])
    assert (code, "--replace is not given" in err) == (2, True)
    assert run(["roster", "deal", "c", "--replace", "c"])[0] == 0
    assert "TLS fingerprint" in sign(run)
    assert near("c") == before


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["add", "a", "--to", "b"], "its links are secret"),
        (["remove", "a"], "its links are secret"),
        (["renew"], "its links are secret"),
        (["edges"], "its links are secret"),
        (["renew", "a"], "its links are secret"),
        (["deal", "--remove", "x"], "among the members of version 1"),
        (["deal", "a", "--remove", "a"], "no card of it"),
        (["deal", "--replace", "a"], "a member of whom there is a card"),
        (["make", *NAMES[:4], "--overlay", "3", "--out", "x"], "overlay"),
        (
            ["make", *NAMES, "--overlay", "3", "--graph", "ring:8", "--out", "x"],
            "one of --graph, --edges and --overlay",
        ),
        (["make", *NAMES[:7], "--overlay", "3", "--out", "x"], "even, since the number of nodes, 7, is odd"),
        (["make", *NAMES, "--overlay", "3", "--period", "0", "--out", "x"], "period"),
    ],
)
@pytest.mark.usefixtures("place")
def test_bad_input_gets_one_line(arguments: list[str], line: str, run: Cli) -> None:
    """Which names what is wrong."""
    code, _, err = run(["roster", *arguments])
    assert (code, err.count("\n"), line in err) == (2, 1, True), err


def test_the_dealers_part_must_belong_to_the_roster(place: Path, run: Cli) -> None:
    """Without it, or with that of another draft, nothing can be dealt."""
    other = place / "roster.json.deal"
    assert run(["roster", "deal"])[0] == 0
    (place / "next.json.deal").replace(other)
    code, _, err = run(["roster", "deal", "--out", "third.json"])
    assert (code, "belongs to another roster" in err) == (2, True)
    other.unlink()
    code, _, err = run(["roster", "deal", "--out", "third.json"])
    assert (code, "roster.json.deal" in err) == (2, True)


def test_a_published_roster_is_not_dealt(place: Path, run: Cli) -> None:
    """It says which verbs change it."""
    assert run(["roster", "make", *NAMES[:4], "--graph", "ring:4", "--out", "open.json"])[0] == 0
    code, _, err = run(["roster", "deal", "--roster", "open.json"])
    assert (code, "add, remove and renew" in err) == (2, True)
    assert not deal_path(place / "open.json").exists()
    assert Deal.read(deal_path(place / "roster.json"), Roster.read_draft(place / "roster.json")).left == ()
