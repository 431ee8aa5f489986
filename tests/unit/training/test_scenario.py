"""Scenarios from specs and from objects: defaults that fit, refusals in the user's words, the same run either way."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from veilwalk.core.errors import ConfigError, GraphError, InvalidParameterError
from veilwalk.core.support import DistanceSupport
from veilwalk.core.walk import Walk
from veilwalk.design import Scheme, choose_scheme, save_scheme
from veilwalk.graphs import Graph, parse_graph_spec, random_regular
from veilwalk.learning import ALGORITHMS, SoftmaxLearner, load_data, parse_partition_spec
from veilwalk.training import Scenario, make_spec, run_training, train
from veilwalk.training._scenario import learner_name

SMALL = make_spec(graph="rrg:30:3:seed=1", updates=60, attack=0, evaluations=4, compare="none", partition="iid")


def scheme(walk: str = "simple") -> Scheme:
    graph = parse_graph_spec(SMALL.graph)
    return choose_scheme(graph, "uniform-node", support=(2, 3), walk=walk)


def arrays(shift: float = 0.0) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    return rng.random((200, 4)) + shift, rng.integers(3, size=200)


def softmax(rate: float = 0.1) -> SoftmaxLearner:
    return SoftmaxLearner(n_features=4, n_classes=3, learning_rate=rate)


@pytest.mark.parametrize(
    ("graph", "law", "support"),
    [("rrg:300:3:seed=1", "paper", "2:6"), ("rrg:30:3:seed=1", "paper", "2:5"), ("ring:12", "uniform-node", "2:6"),
     ("er:60:6:seed=1:component=largest", "uniform-node", "2:3"), ("torus:5:5", "paper", "2:4")],
)  # fmt: skip
def test_law_and_support_fit_the_graph_and_are_said(graph: str, law: str, support: str) -> None:
    """The paper's scheme, or what is like it, on any graph; the settings of the run name what was chosen."""
    parts = Scenario.from_spec(SMALL.change(graph=graph, scheme="paper")).spec.scheme
    assert (parts.law, parts.support, parts.walk) == (law, support, "simple")


@pytest.mark.parametrize(
    ("graph", "law", "walk", "recipients"),
    [
        ("rrg:300:3:seed=1", "far:4", "non-backtracking", 16),
        ("ring:12", "far:2", "simple", 1),
        ("auto", "far:2", "non-backtracking", 64),
    ],
)
def test_the_recommended_scheme_is_taken_and_said(graph: str, law: str, walk: str, recipients: int) -> None:
    """Sealed for several where that hides enough; what it says makes the same scheme again."""
    spec = Scenario.from_spec(SMALL.change(graph=graph)).spec
    assert (spec.scheme.law, spec.scheme.walk, spec.scheme.support) == (law, walk, None)
    assert spec.scheme.recipients == recipients
    assert Scenario.from_spec(spec).spec == spec


@pytest.mark.parametrize("part", [{"scheme": "paper"}, {"law": "uniform-node"}, {"walk": "non-backtracking"}, {}])
def test_a_run_without_a_network_has_an_overlay_unless_a_scheme_is_given(part: dict[str, str]) -> None:
    """Members of an overlay know no distances, which the paper's scheme and laws need."""
    graph = Scenario.from_spec(SMALL.change(graph="auto", **part)).graph
    assert (graph.n_nodes, graph.is_overlay) == (300, not part)


def test_a_law_file_brings_its_walk_and_its_distances(tmp_path: Path) -> None:
    """Another walk is used on request, and remarked upon; other distances are refused."""
    path = tmp_path / "law.npz"
    save_scheme(path, scheme("non-backtracking"))
    settings = SMALL.change(law=str(path))
    parts = Scenario.from_spec(settings).spec.scheme
    assert (parts.law, parts.support, parts.walk) == (str(path), "2:3", "non-backtracking")
    assert Scenario.from_spec(settings).scheme.remark() is None
    other = Scenario.from_spec(settings.change(walk="simple")).scheme
    assert other.walk == Walk()
    assert "designed for the non-backtracking walk" in str(other.remark())
    with pytest.raises(InvalidParameterError, match=r"support = '2:4': must be left out: the law in .* distances 2:3"):
        Scenario.from_spec(settings.change(support="2:4"))


@pytest.mark.parametrize("law", ["uniform-distance", "paper-exact", "optimal"])
def test_every_law_by_name_can_be_trained_with(law: str) -> None:
    """As in design and audit."""
    assert Scenario.from_spec(SMALL.change(law=law, support="2:3")).scheme.law.name == law


def test_networks_in_which_somebody_never_trains_are_refused_before_training() -> None:
    """Two nodes; and recipients who seal only for each other, by name."""
    with pytest.raises(GraphError, match="next to all others"):
        choose_scheme(Graph.from_edges(2, np.array([[0, 1]])))
    scheme = choose_scheme(random_regular(8, 3, seed=1), "far:2", walk="non-backtracking", recipients=4)
    with pytest.raises(InvalidParameterError, match="2, 5, 6, 7 may never train"):
        Scenario.build(scheme, data=arrays(), partition="iid", learner=softmax())


def test_a_path_trains_where_updates_can_travel() -> None:
    """Seven nodes in a row."""
    edges = np.array([[node, node + 1] for node in range(6)])
    run = train(choose_scheme(Graph.from_edges(7, edges)), data=arrays(), learner=softmax(), updates=30, attack=0)
    record = run.record()
    assert record.result["algorithms"]["private-walk"]["updates"] == 30
    # A network that no name makes is not called by the name of another.
    assert record.params["graph"] == "given"


def test_the_plain_walk_is_no_scheme_to_train_with() -> None:
    """It is a comparison."""
    with pytest.raises(InvalidParameterError, match="law = 'plain': must be a law that seals for somebody"):
        Scenario.from_spec(SMALL.change(law="plain"))


@pytest.mark.parametrize(
    ("partition", "words"),
    [
        ("pathological:12", "partition = 'pathological': must be shards:PER_NODE"),
        ("shards:100", "partition = 'shards:100': must be shards:PER_NODE with 1 to"),
        ("dirichlet:-1", "partition = 'dirichlet:-1': must be dirichlet:ALPHA with ALPHA positive"),
        ("natural:writer", "partition = 'natural:writer': must be natural:COLUMN with one of the columns label"),
    ],
)
def test_partitions_are_refused_in_the_words_of_who_asked(partition: str, words: str) -> None:
    """Nodes and rows; never a partitioner's own parameters."""
    with pytest.raises(InvalidParameterError) as refused:
        Scenario.from_spec(SMALL.change(partition=partition))
    assert words in str(refused.value)
    assert "partitions" not in str(refused.value)
    assert "num_" not in str(refused.value)


def test_objects_give_the_run_that_their_specs_give() -> None:
    """Model and evaluations, to the last bit; the record says what they are called."""
    by_spec = run_training(Scenario.from_spec(SMALL))
    data = load_data("digits", seed=SMALL.seed)
    rate = SoftmaxLearner(n_features=64, n_classes=10, learning_rate=1.0, local_steps=10)
    by_object = train(
        Scenario.from_spec(SMALL).scheme,
        data=data,
        learner=rate,
        partition=parse_partition_spec("iid", graph=Scenario.from_spec(SMALL).graph, seed=SMALL.seed),
        updates=60,
        attack=0,
        evaluations=4,
        compare="none",
    )
    for name, array in by_spec.model.items():
        assert by_object.model[name].tobytes() == array.tobytes()
    assert by_object.rows()[-1]["loss"] == by_spec.rows()[-1]["loss"]
    params = by_object.record().params
    assert (params["data"], params["partition"], params["law"]) == ("digits", "iid", "far:2")
    assert params["learner"] == repr(rate)
    assert params.keys() == by_spec.record().params.keys()


def test_arrays_are_split_by_the_seed(tmp_path: Path) -> None:
    """As an npz file with the same arrays is."""
    features, labels = arrays()
    np.savez(tmp_path / "d.npz", features=features, labels=labels)
    of_file = load_data(f"npz:{tmp_path / 'd.npz'}", seed=3)
    made = Scenario.build(scheme(), make_spec(seed=3), data=(features, labels), partition="iid", learner=softmax())
    assert np.array_equal(made.data.test.features, of_file.test.features)
    assert np.array_equal(made.data.train.labels, of_file.train.labels)
    assert made.spec.learning.data == "arrays"


def test_a_run_from_objects_is_resumed_by_the_same_objects_only(tmp_path: Path) -> None:
    """Other rows, another law of no name, a learner with another step: each is another run."""
    options: dict[str, Any] = {"updates": 40, "attack": 0, "compare": "none", "out": tmp_path / "run"}
    nameless = replace(scheme(), law=scheme().law.named(""))
    first = train(nameless, data=arrays(), learner=softmax(), **options)
    again = train(nameless, data=arrays(), learner=softmax(), resume=True, **options)
    assert again.record().to_json() == first.record().to_json()
    assert (tmp_path / "run" / "record.json").read_text() == first.record().to_json()
    with pytest.raises(ValueError, match="is of another run"):
        train(nameless, data=arrays(0.5), learner=softmax(), resume=True, **options)
    law = choose_scheme(nameless.graph, "uniform-distance", support=DistanceSupport(2, 3)).law.named("")
    with pytest.raises(ValueError, match="is of another run"):
        train(Scheme(nameless.graph, law), data=arrays(), learner=softmax(), resume=True, **options)
    with pytest.raises(ConfigError, match="other settings \\(learner = "):
        train(nameless, data=arrays(), learner=softmax(0.2), resume=True, **options)


def test_learners_are_told_apart_by_what_they_offer() -> None:
    """Their own spec, their fields, their class."""

    class Bare:
        pass

    class Named:
        spec = "named:depth=3"

    @dataclass
    class Sized:
        depth: int

    found: list[Any] = [Bare(), Named(), Sized(3)]
    bare, named, sized = map(learner_name, found)
    assert bare.endswith(":test_learners_are_told_apart_by_what_they_offer.<locals>.Bare")
    assert (named, sized.endswith("Sized(depth=3)")) == ("named:depth=3", True)


def test_what_the_scheme_says_is_not_asked_again() -> None:
    """Graph, law, support and walk."""
    with pytest.raises(InvalidParameterError, match="walk = 'lazy': must be left out: the scheme says it"):
        train(scheme(), data="digits", learner="softmax", walk="lazy")  # type: ignore[call-arg]


def test_a_run_is_a_table_where_tables_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows as in metrics.csv, HTML in a notebook, a data frame where pandas is there."""
    run = train(scheme(), data=arrays(), learner=softmax(), updates=20, attack=0, compare="gossip")
    page = run._repr_html_()
    assert page.count("<tr>") == 3
    assert "<td>private-walk</td>" in page
    assert {row["algorithm"] for row in run.rows()} == {"private-walk", "gossip"}
    pandas = ModuleType("pandas")
    monkeypatch.setattr(pandas, "DataFrame", lambda rows: rows, raising=False)
    monkeypatch.setitem(sys.modules, "pandas", pandas)
    assert run.to_frame() == run.rows()
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ConfigError, match="pandas is missing"):
        run.to_frame()


def test_the_comparisons_are_all_the_others_there_are() -> None:
    """The default names each algorithm of learning but the private walk, and gossip by matchings."""
    assert make_spec().checks.comparisons == tuple(name for name in ALGORITHMS[1:] if name != "gossip-matching")
