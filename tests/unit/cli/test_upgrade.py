"""What other versions left: each command says in one line that it does not read it, and what to do."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from tests.helpers.cli import Cli
from tests.helpers.rosters import sign_file

from veilwalk.node import load_config
from veilwalk.node.cluster import prepare_or_resume, set_up_cluster
from veilwalk.node.members import load_root_key
from veilwalk.node.spool import FolderDisk, Spool
from veilwalk.node.spool._tables import FORMAT
from veilwalk.training import CLUSTER


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cluster whose first node has run."""
    monkeypatch.chdir(tmp_path)
    prepare_or_resume(set_up_cluster(CLUSTER.defaults.change(graph="rrg:6:3:seed=2", suite="x25519")), tmp_path / "c")
    Spool(FolderDisk(load_config(tmp_path / "c" / "n0" / "node.toml").state)).close()
    return tmp_path / "c"


def make_old(folder: Path, kind: str) -> None:
    """Sign a roster or a manifest as 0.2 wrote it."""
    path = folder / f"{kind}.json"
    before = path.read_bytes().replace(f"veilwalk-{kind}-3".encode(), f"veilwalk-{kind}-2".encode())
    assert before != path.read_bytes()
    sign_file(path, kind, before, load_root_key(folder / "root"))


@pytest.mark.parametrize(
    ("kind", "command"),
    [
        ("manifest", "node run --config c/n0/node.toml"),
        ("manifest", "cluster up --out c"),
        ("roster", "node run --config c/n0/node.toml"),
        ("roster", "roster check c/roster.json --root-public c/root/root.pub"),
        ("roster", "roster renew --roster c/roster.json"),
        ("roster", "node manifest --root c/root --roster c/roster.json --features 1 --classes 2 --updates 1 --out m"),
    ],
)
def test_signed_files_of_0_2_are_refused_in_one_line(cluster: Path, run: Cli, kind: str, command: str) -> None:
    make_old(cluster, kind)
    code, out, err = run(command.split())
    assert (code, out, err.count("\n")) == (2, "", 1)
    ours = f"this one reads veilwalk-{kind}-3"
    assert err.endswith(f"{kind}.json: veilwalk-{kind}-2 is of an older version, {ours}: make the run anew\n")


@pytest.mark.parametrize(("other", "age"), [(0, "an older"), (FORMAT + 1, "a newer")])
def test_a_state_folder_of_another_version_is_refused_in_one_line_and_left_as_it_is(
    cluster: Path, run: Cli, other: int, age: str
) -> None:
    """The first versions wrote no format anywhere; later ones write it twice."""
    state = load_config(cluster / "n0" / "node.toml").state
    with closing(sqlite3.connect(state / "spool.db")) as database:
        database.execute(f"PRAGMA user_version = {other}")
        if other:
            database.execute("UPDATE mark SET data = ? WHERE name = 'format'", (str(other).encode(),))
        else:
            database.execute("DELETE FROM mark WHERE name = 'format'")
        database.commit()
    before = (state / "spool.db").read_bytes()
    said = f"spool.db: written by {age} version of veilwalk (storage format {other}, this one has {FORMAT})"
    code, out, _ = run(["node", "check", "c/n0/node.toml", "--no-peers"])
    assert code == 1
    assert said in " ".join(out.split())
    for command in ("node run --config c/n0/node.toml", "node status --config c/n0/node.toml"):
        code, _, err = run(command.split())
        assert (code, err.count("\n")) == (4, 1)
        assert said in err
        assert err.endswith(", or begin with an empty folder\n")
    assert (state / "spool.db").read_bytes() == before
    assert not list(state.glob("*.damaged*"))
