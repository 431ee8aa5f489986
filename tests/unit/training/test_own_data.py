"""A user's own data: rows reach the node of their name, and own learners are given numbers as they are."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.helpers.cli import Cli

import veilwalk as vw
from veilwalk.core.errors import InvalidParameterError
from veilwalk.learning import (
    Partition,
    StepContext,
    UpdateResult,
    data_of,
    make_partitions,
    parse_partition_spec,
)
from veilwalk.training import train

# Not in sorted order, as an owner writes them.
SITES = ("Zürich", "Graz", "Berlin", "Wien", "Linz", "Basel", "Aarau", "Ulm")
RELAY = "Hub"
SMALL: dict[str, Any] = {"updates": 20, "audit": "none", "attack": 0, "compare": "none"}


def ring(names: tuple[str, ...]) -> list[tuple[str, str]]:
    return [(name, names[(at + 1) % len(names)]) for at, name in enumerate(names)]


def write_graph(folder: Path, ending: str, names: tuple[str, ...] = SITES) -> str:
    """Write a ring in one of the formats, and return its spec."""
    path, edges = folder / f"net.{ending}", ring(names)
    if ending == "graphml":
        nodes = "".join(f'<node id="{name}"/>' for name in names)
        links = "".join(f'<edge source="{one}" target="{other}"/>' for one, other in edges)
        text = f'<graphml xmlns="http://graphml.graphdrawing.org/xmlns"><graph edgedefault="undirected">{nodes}{links}'
        text += "</graph></graphml>"
    elif ending == "json":
        nodes_and_links = {"nodes": [{"id": name} for name in names], "links": []}
        nodes_and_links["links"] = [{"source": one, "target": other} for one, other in edges]
        text = json.dumps(nodes_and_links)
    else:
        text = "".join(f"{one} {other}\n" for one, other in edges)
    path.write_text(text)
    return f"file:{path}"


def write_sites(folder: Path, sites: tuple[str, ...] = SITES, *, column: str = "site") -> str:
    """Write rows whose first feature is the number of their site, and return the spec of the table."""
    path = folder / "rows.csv"
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["number", "other", column, "kind"])
        for row in range(40 * len(sites)):
            site = row % len(sites)
            writer.writerow([site, row % 7, sites[site], ("hen", "owl")[row % 2]])
    return f"csv:{path}:label=kind:group={column}"


class Watcher:
    """A learner of one's own that keeps the rows it is given, and learns nothing."""

    def __init__(self) -> None:
        self.rows: list[np.ndarray[Any, Any]] = []
        self.labels: list[np.ndarray[Any, Any]] = []

    def init_params(self, rng: np.random.Generator) -> dict[str, Any]:
        """Two zeros."""
        del rng
        return {"weight": np.zeros(2, dtype=np.float32)}

    def update(self, params: Any, data: Partition, ctx: StepContext) -> UpdateResult:
        """Keep the rows, and count."""
        del ctx
        self.rows.append(data.features.copy())
        self.labels.append(data.labels.copy())
        return UpdateResult(params={"weight": params["weight"] + 1}, num_examples=len(data))

    def evaluate(self, params: Any, data: Partition) -> dict[str, float]:
        """Nothing is ever wrong."""
        del params, data
        return {"loss": 0.0}


def scheme_of(spec: str) -> Any:
    return vw.recommend(vw.parse_graph_spec(spec)).scheme


@pytest.mark.parametrize("ending", ["graphml", "json", "txt"])
def test_rows_go_to_the_node_of_their_name(tmp_path: Path, ending: str) -> None:
    """Whatever the order of the nodes in the file."""
    scheme = scheme_of(write_graph(tmp_path, ending))
    run = train(scheme, data=write_sites(tmp_path), learner=Watcher(), partition="natural:site", **SMALL)
    labels = scheme.graph.labels
    for node, part in enumerate(run.scenario.partitions):
        assert set(part.features[:, 0].tolist()) == {SITES.index(labels[node])}
    partitioner = parse_partition_spec("natural:site", graph=scheme.graph, seed=0)
    by_object = train(scheme, data=write_sites(tmp_path), learner=Watcher(), partition=partitioner, **SMALL)
    assert by_object.scenario.partitions.sizes.tolist() == run.scenario.partitions.sizes.tolist()
    assert np.array_equal(by_object.scenario.partitions.rows.features, run.scenario.partitions.rows.features)


def test_a_value_that_is_no_node_is_refused_by_name(tmp_path: Path) -> None:
    """Bonn is in the data, Basel in the network."""
    data = write_sites(tmp_path, tuple("Bonn" if name == "Basel" else name for name in SITES))
    with pytest.raises(InvalidParameterError) as refused:
        train(scheme_of(write_graph(tmp_path, "txt")), data=data, learner="softmax", partition="natural:site", **SMALL)
    assert (refused.value.name, refused.value.value) == ("partition", "natural:site")
    said = str(refused.value)
    assert "Bonn" in said
    assert "Basel" in said
    assert "\n" not in said


def test_a_node_without_rows_relays_and_is_named(tmp_path: Path, run: Cli) -> None:
    """With every comparison and the content attack: the note is printed once, and the record keeps it."""
    graph, data = write_graph(tmp_path, "graphml", (*SITES, RELAY)), write_sites(tmp_path)
    command = ["train", "--graph", graph, "--data", data, "--partition", "natural:site", "--updates", "60"]
    code, out, err = run([*command, "--attack", "25", "--json"])
    assert code == 0, err
    told = [line for line in err.splitlines() if RELAY in line]
    assert len(told) == 1
    record = json.loads(out)
    assert [note for note in record["data"]["notes"] if RELAY in note]
    assert record["data"]["rows_of_a_node"][0] == 0


def test_without_names_a_line_says_which_node_has_what(tmp_path: Path, run: Cli) -> None:
    data = write_sites(tmp_path)
    command = ["train", "--graph", "ring:8", "--data", data, "--partition", "natural:site", "--updates", "20"]
    code, out, err = run([*command, "--attack", "0", "--compare", "none", "--json"])
    assert code == 0, err
    for node, site in enumerate(sorted(SITES)):
        assert f"{site} to {node}" in err
    assert any("Zürich to 7" in note for note in json.loads(out)["data"]["notes"])


def test_zeros_before_a_number_are_part_of_a_name(tmp_path: Path) -> None:
    """007 is a node, and 7 is none."""
    names = ("010", "007", "003", "001", "002", "009")
    scheme = scheme_of(write_graph(tmp_path, "graphml", names))
    run = train(scheme, data=write_sites(tmp_path, names), learner=Watcher(), partition="natural:site", **SMALL)
    for node, part in enumerate(run.scenario.partitions):
        assert set(part.features[:, 0].tolist()) == {names.index(scheme.graph.labels[node])}


IDS = np.stack([np.arange(600) % 100, np.arange(600) % 37], axis=1)


@pytest.mark.parametrize("kind", [np.int64, np.uint8, np.float64])
def test_a_learner_of_ones_own_is_given_whole_numbers_as_they_are(kind: type) -> None:
    """All 100 users, from arrays in memory of any type; what was not scaled is said."""
    learner = Watcher()
    run = train(
        scheme_of("rrg:20:3:seed=1"), data=(IDS.astype(kind), np.arange(600) % 2), learner=learner,
        **SMALL | {"updates": 200},
    )  # fmt: skip
    rows = np.concatenate(learner.rows)
    assert len(np.unique(rows[:, 0])) == 100
    assert rows[:, 0].max() == 99
    facts = run.record().result["data"]
    assert "feature_range" not in facts
    assert len(facts["notes"]) == 1


def test_a_learner_of_ones_own_is_scaled_for_if_asked() -> None:
    """By the spec of the data, in Python by ``scale``; real labels are scaled with features, or not at all."""
    scheme, targets = scheme_of("rrg:20:3:seed=1"), np.arange(600) / 7
    for scale, largest in ((None, targets.max()), ("range", 1.0)):
        learner = Watcher()
        run = train(scheme, data=(IDS, targets), learner=learner, scale=scale, **SMALL)
        assert run.scenario.data.train.features.max() == (99 if scale is None else 1)
        assert run.scenario.data.train.labels.max() == pytest.approx(largest, rel=0.02)
        assert run.record().result["data"].keys() >= (set() if scale is None else {"feature_range", "target_range"})
    with pytest.raises(InvalidParameterError) as refused:
        train(scheme, data=(IDS, targets), learner=Watcher(), scale="columns", **SMALL)
    assert refused.value.name == "scale"
    with pytest.raises(InvalidParameterError) as refused:
        train(scheme, data=data_of(IDS, targets, scale="none"), learner=Watcher(), scale="range", **SMALL)
    assert refused.value.name == "scale"


@pytest.mark.parametrize("kind", [np.int64, np.uint8])
def test_built_in_learners_scale_unless_told_otherwise(kind: type) -> None:
    """By the range of the training part, bytes by 255; a line says so."""
    scheme = scheme_of("rrg:20:3:seed=1")
    given: Any = (IDS.astype(kind), np.arange(600) % 2)
    run = train(scheme, data=given, learner="softmax", **SMALL)
    largest = run.scenario.data.train.features.max()
    assert largest == (np.float32(99) / np.float32(255) if kind is np.uint8 else 1)
    assert len(run.record().result["data"]["notes"]) == 1
    raw = train(scheme, data=given, learner="softmax", scale="none", **SMALL)
    assert raw.scenario.data.train.features.max() == 99
    assert "notes" not in raw.record().result["data"]


def test_rows_dealt_out_before_are_scaled_as_held_out_rows_are() -> None:
    """Partitions made from data that no run has scaled yet give the run that the partitioner gives."""
    scheme, data = scheme_of("rrg:20:3:seed=1"), data_of(IDS, np.arange(600) / 7, seed=7)
    partitioner = parse_partition_spec("iid", graph=scheme.graph, seed=7)
    runs = [
        train(scheme, data=data, learner="linear", partition=partition, **SMALL)
        for partition in (partitioner, make_partitions(partitioner, data))
    ]
    for one, other in zip(*(run.scenario.partitions for run in runs), strict=True):
        assert one.features.tobytes() == other.features.tobytes()
        assert one.labels.tobytes() == other.labels.tobytes()
    assert runs[0].scenario.partitions.rows.features.max() == 1


def test_the_factors_of_the_how_to_see_all_users(tmp_path: Path, run: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page's own example, on a table: every user's factors have moved."""
    pytest.importorskip("torch")
    page = (Path(__file__).parents[3] / "docs/how-to/write-your-own-learner.md").read_text()
    source = page[page.index("# ratings.py") :]
    (tmp_path / "own_ratings.py").write_text(source[: source.index("```")])
    monkeypatch.syspath_prepend(str(tmp_path))
    with (tmp_path / "r.csv").open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["user", "item", "rating"])
        writer.writerows([row % 100, row * 7 % 200, 1 + row % 5] for row in range(2000))
    folder = tmp_path / "run"
    code, _, err = run(
        ["train", "--graph", "rrg:20:3:seed=1", "--data", f"csv:{tmp_path / 'r.csv'}:target=rating",
         "--learner", "own_ratings:model", "--partition", "iid", "--updates", "150", "--attack", "0",
         "--compare", "none", "--audit", "none", "--out", str(folder)]
    )  # fmt: skip
    assert code == 0, err
    learner = vw.make_learner("own_ratings:model", n_features=2, n_classes=0)
    first = learner.init_params(vw.learning.init_generator(7))
    moved = np.any(vw.load_model(folder / "model.npz")["users.weight"] != first["users.weight"], axis=1)
    assert moved.sum() == 100


@pytest.mark.parametrize("option", ["", ":scale=range"])
def test_predict_scales_as_the_training_did(tmp_path: Path, run: Cli, option: str) -> None:
    """On other rows: scaled by their own range, or not at all, they would be told wrongly."""
    rng = np.random.default_rng(0)

    def write(path: Path, kinds: Any) -> None:
        with path.open("w", newline="") as stream:
            writer = csv.writer(stream)
            writer.writerow(["weight", "depth", "label"])
            writer.writerows(
                [900 + 50 * kind + rng.normal(), -5 + rng.normal(), ("hen", "owl")[kind]] for kind in kinds
            )

    write(tmp_path / "train.csv", rng.integers(2, size=300))
    write(tmp_path / "new.csv", [0] * 20 + [1])
    folder, new = tmp_path / "run", f"csv:{tmp_path / 'new.csv'}"
    command = ["train", "--graph", "rrg:20:3:seed=1", "--data", f"csv:{tmp_path / 'train.csv'}{option}"]
    more = ["--learner", "softmax:learning_rate=1", "--partition", "iid", "--updates", "300", "--attack", "0"]
    code, _, err = run([*command, *more, "--compare", "none", "--audit", "none", "--out", str(folder)])
    assert (code, err.count("scale=none")) == (0, 1)
    for spec in (new, new + option):
        code, out, err = run(["predict", str(folder), "--data", spec])
        assert code == 0, err
        assert "accuracy 100.00% on 21 rows" in out
        assert "scaled as in training" in err
    code, _, err = run(["predict", str(folder), "--data", f"{new}:scale=none"])
    assert (code, len(err.splitlines())) == (2, 1)
    assert "--data" in err
