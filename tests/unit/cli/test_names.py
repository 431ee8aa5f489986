"""Names all the way: from a file of named nodes through design and roster to the row that a node draws from."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tests.helpers.cli import Cli

from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.units import readable_seconds
from veilwalk.design import choose_scheme, save_scheme
from veilwalk.graphs import Graph, read_graph, ring
from veilwalk.node import Suite
from veilwalk.node.members import Manifest, Roster, new_node_keys, new_root_key
from veilwalk.node.peer._routing import read_law

# As numbers they stand in another order than as text, in which rosters stand.
NAMES = ("1", "2", "3", "10", "20", "30")
EDGES = "from,to\n30,1\n1,2\n2,3\n3,10\n10,20\n20,30\n1,3\n"


@pytest.fixture
def network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "network.csv"
    path.write_text(EDGES)
    return path


def test_a_design_on_a_file_of_names_runs_on_a_roster_of_these_names(network: Path, run: Cli) -> None:
    """design, roster, manifest with nothing numbered by hand; every node draws from the row under its own name."""
    assert run(["design", "--graph", "file:network.csv", "--law", "uniform-node", "--out", "law.npz"])[0] == 0
    new_root_key(Path("root"))
    for number, name in enumerate(NAMES):
        new_node_keys(Path("keys", name), node_id=name, address=f"h:{7100 + number}", suite=Suite.X25519)
    cards = [f"keys/{name}" for name in NAMES]
    assert run(["roster", "make", *cards, "--edges", "network.csv", "--out", "roster.json"])[0] == 0
    assert run(["roster", "sign", "roster.json", "--root", "root"])[0] == 0
    manifest = ["node", "manifest", "--root", "root", "--roster", "roster.json", "--law", "law.npz", "--allow-sandwich"]
    manifest += ["--features", "4", "--classes", "2", "--updates", "5"]
    code, out, err = run([*manifest, "--dwell", "2", "--payload", "fp16", "--out", "manifest.json"])
    assert (code, err) == (0, "")
    seconds = 5 * 2 * choose_scheme(read_graph(network), "law.npz").price.hops
    assert f"all 5 updates take at least {readable_seconds(seconds)}: hops per update times the dwell" in out
    for flag in ("--features", "--classes", "--dwell", "--hop", "--away", "--days", "--rows"):
        code, _, err = run([*manifest, flag, "-1", "--out", "refused.json"])
        assert (code, err.startswith(f"veilwalk: {flag} = -1")) == (2, True), err
    # 4 x 2 weights and 2 biases, two bytes each; what no version may change stays, said or not.
    assert run([*manifest, "--previous", "manifest.json", "--dwell", "40", "--out", "next.json"])[0] == 0
    assert [Manifest.read_draft(Path(name)).rules.dwell_s for name in ("manifest.json", "next.json")] == [2, 40]
    without_updates = manifest[: manifest.index("--updates")]
    code, _, err = run([*without_updates, "--out", "refused.json"])
    assert (code, err.startswith("veilwalk: --updates is not given")) == (2, True), err
    assert run([*without_updates, "--previous", "manifest.json", "--dwell", "2", "--out", "same.json"])[0] == 0
    assert Manifest.read_draft(Path("same.json")).rules.updates == 5
    for name in ("manifest.json", "next.json"):
        draft = Manifest.read_draft(Path(name))
        assert (draft.spec.learning.payload, draft.body_bytes) == ("fp16", 20)

    roster, graph = Roster.read_draft(Path("roster.json")), read_graph(network)
    assert roster.ids != graph.labels
    assert set(roster.graph().labels or ()) == set(graph.labels or ()) == set(NAMES)
    matrix = choose_scheme(graph, "law.npz").law.matrix.toarray()
    moved = choose_scheme(roster.graph(), "law.npz").law.matrix.toarray()
    for name in NAMES:
        expected = {graph.label(node): share for node, share in enumerate(matrix[graph.node(name)]) if share}
        assert read_law(Path("law.npz"), roster.ids, name).shares == pytest.approx(expected)
        row = moved[roster.index(name)]
        assert {roster.ids[node]: share for node, share in enumerate(row) if share} == pytest.approx(expected)


def test_a_law_belongs_to_its_nodes_by_name(tmp_path: Path) -> None:
    """The same nodes in another order are found; other edges between them, and other names, are refused."""
    graph = Graph.from_edges(5, [(0, 1), (1, 2), (2, 3), (3, 4), (0, 2)], labels=["a", "b", "c", "d", "e"])
    law = str(tmp_path / "law.npz")
    save_scheme(law, choose_scheme(graph, "uniform-node"))
    order = [3, 0, 4, 1, 2]
    edges = np.argsort(order)[graph.edges()]
    again = Graph.from_edges(5, edges, labels=[graph.label(node) for node in order])
    found, before = choose_scheme(again, law).law.matrix.toarray(), choose_scheme(graph, law).law.matrix.toarray()
    assert np.array_equal(found, before[np.ix_(order, order)])
    with pytest.raises(InvalidParameterError, match="designed for"):
        choose_scheme(Graph.from_edges(5, graph.edges(), labels=["a", "b", "d", "c", "e"]), law)
    with pytest.raises(InvalidParameterError, match="a node called z"):
        choose_scheme(Graph.from_edges(5, graph.edges(), labels=["a", "b", "c", "d", "z"]), law)
    with pytest.raises(InvalidParameterError, match="6 nodes"):
        choose_scheme(ring(6), law)
    # Nodes without names are found by their place, as ever.
    assert np.array_equal(choose_scheme(Graph.from_edges(5, graph.edges()), law).law.matrix.toarray(), before)


def test_records_have_the_names_beside_the_numbers(network: Path, run: Cli) -> None:
    """Design, audit and training keep their numbers and add labels; a graph without names adds nothing."""
    labels = list(NAMES)
    law = ["--law", "uniform-node"]
    few = {
        "design": law,
        "audit": [*law, "--updates", "500", "--observers", "last-hop"],
        "train": ["--updates", "3", "--compare", "none", "--attack", "0"],
    }
    for verb, options in few.items():
        code, out, _ = run([verb, "--graph", f"file:{network}", *options, "--json"])
        assert code == 0
        assert json.loads(out)["labels"] == labels, verb
        code, out, _ = run([verb, "--graph", "ring:7", *options, "--json"])
        assert code == 0
        assert "labels" not in json.loads(out), verb


def test_what_a_later_manifest_does_not_name_stays_as_it_was(network: Path, run: Cli) -> None:
    """Also the dwell that was tried, and the test set; what changes is shown before it is handed out."""
    new_root_key(Path("root"))
    for number, name in enumerate(NAMES):
        new_node_keys(Path("keys", name), node_id=name, address=f"h:{7100 + number}", suite=Suite.X25519)
    cards = [f"keys/{name}" for name in NAMES]
    assert run(["roster", "make", *cards, "--edges", "network.csv", "--out", "roster.json"])[0] == 0
    assert "too few to hide anybody" in run(["roster", "sign", "roster.json", "--root", "root"])[1]
    np.savez("test.npz", features=np.zeros((2, 4), np.float32), labels=np.zeros(2, np.int64))
    manifest = ["node", "manifest", "--root", "root", "--roster", "roster.json", "--features", "4", "--classes", "2"]
    first = [*manifest, "--updates", "50", "--walks", "2", "--target-accuracy", "0.9", "--test", "test.npz"]
    first += ["--accept", "norm:2", "--evaluations", "7", "--norm-bound", "9", "--law", "far:2", "--recipients", "2"]
    assert run([*first, "--out", "manifest.json"])[0] == 0
    code, out, err = run([*manifest, "--previous", "manifest.json", "--away", "5", "--out", "next.json"])
    assert (code, err) == (0, "")
    before, after = (Manifest.read_draft(Path(name)) for name in ("manifest.json", "next.json"))
    assert after.spec == before.spec.change(away=5.0)
    assert (after.norm_bound, after.test_digest) == (9.0, before.test_digest)
    agreed, _, changes = out.partition("changes from version 1")
    assert ["away", "5.0"] in [line.split() for line in agreed.splitlines()]
    shown = [line.split() for line in changes.splitlines()]
    assert ["away", "60.0", "5.0"] in shown
    assert not any(line[:1] in (["dwell"], ["updates"]) for line in shown)


def test_a_law_file_is_named_again(network: Path, run: Cli) -> None:
    """No rule takes its place unasked."""
    assert run(["design", "--graph", "file:network.csv", "--law", "uniform-node", "--out", "law.npz"])[0] == 0
    new_root_key(Path("root"))
    for number, name in enumerate(NAMES):
        new_node_keys(Path("keys", name), node_id=name, address=f"h:{7100 + number}", suite=Suite.X25519)
    cards = [f"keys/{name}" for name in NAMES]
    assert run(["roster", "make", *cards, "--edges", "network.csv", "--out", "roster.json"])[0] == 0
    assert run(["roster", "sign", "roster.json", "--root", "root"])[0] == 0
    manifest = ["node", "manifest", "--root", "root", "--roster", "roster.json", "--features", "4", "--classes", "2"]
    first = [*manifest, "--law", "law.npz", "--updates", "5", "--allow-sandwich", "--out", "manifest.json"]
    assert run(first)[0] == 0
    code, _, err = run([*manifest, "--previous", "manifest.json", "--out", "next.json"])
    assert (code, err.startswith("veilwalk: --law is not given")) == (2, True), err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("node manifest --spare 1", "--spare is gone"),
        ("cluster up --walks 2 --meet 10 --updates 120", "--meet = 10: must be at least 20"),
        ("cluster up --walks 2 --meet 20 --target-accuracy 0.9", "--meet = 20: must be left out where a target ends"),
    ],
)
def test_what_nodes_do_not_do_is_refused_in_one_line(run: Cli, words: str, said: str) -> None:
    """They keep no spare copies, and their walks meet when enough members have trained to sign the ends."""
    code, out, err = run(words.split())
    assert (code, out, err.count("\n"), said in err) == (2, "", 1, True)
