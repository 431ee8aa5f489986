"""Data that come as one file a site: who gets what, what is held out, and a score for each site."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from veilwalk.core.errors import InputFileError, InvalidParameterError
from veilwalk.graphs import Graph, parse_graph_spec
from veilwalk.learning import (
    Array,
    Data,
    Partitions,
    data_of_sites,
    load_data,
    load_rows,
    make_learner,
    make_partitions,
    parse_partition_spec,
    score_sites,
)
from veilwalk.training import Scenario, make_spec

NAMES = ("Graz", "Basel", "Zürich", "Ulm", "Bern")


def make_site(number: int, rows: int = 20) -> tuple[Array, Array]:
    """Return rows whose first feature is the number of the site."""
    rng = np.random.default_rng(number)
    features = np.column_stack((np.full(rows, number), rng.random(rows)))
    return features, np.where(features[:, 1] > 0.3, "yes", "no")


def write_site(path: Path, number: int, *, header: str = "place,dose,y", rows: int = 20) -> None:
    """Write one site as a table."""
    features, labels = make_site(number, rows)
    lines = [f"{place:g},{dose:.6f},{label}" for (place, dose), label in zip(features, labels, strict=True)]
    path.write_text("\n".join((header, *lines)) + "\n")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with one table a site, and a file that is none."""
    (tmp_path / "sites").mkdir()
    for number, name in enumerate(NAMES):
        write_site(tmp_path / "sites" / f"{name}.csv", number, rows=20 + number)
    (tmp_path / "sites" / "README.md").write_text("not a site")
    return tmp_path / "sites"


def named_graph(folder: Path, names: tuple[str, ...] = NAMES) -> Graph:
    """Return a ring of named nodes, in the order given."""
    path = folder.parent / "net.txt"
    path.write_text("\n".join(f"{name} {names[(k + 1) % len(names)]}" for k, name in enumerate(names)) + "\n")
    return parse_graph_spec(f"file:{path}")


def deal(data: Data, graph: Graph) -> Partitions:
    """Deal rows by site."""
    return make_partitions(parse_partition_spec("natural:site", graph=graph, seed=0), data)


@pytest.mark.parametrize("pattern", ["", "/*.csv"])
def test_the_stem_of_a_file_names_the_site(folder: Path, pattern: str) -> None:
    """A folder or a pattern; a fifth of each site is held out, and data know whose rows they are."""
    data = load_data(f"csv:{folder}{pattern}:label=y")
    assert data.sites is not None
    assert data.sites.names == tuple(sorted(NAMES))
    assert data.class_names == ("no", "yes")
    for number, name in enumerate(data.sites.names):
        place = NAMES.index(name)
        held_out = data.test.features[data.sites.test == number]
        assert set(held_out[:, 0].tolist()) == {place}
        assert len(held_out) == round(0.2 * (20 + place))
        assert set(data.train.features[data.columns["site"] == name, 0].tolist()) == {place}


def test_a_site_holds_out_the_same_rows_whoever_else_is_there(folder: Path) -> None:
    """By its name and the seed."""
    everybody = load_data(f"csv:{folder}:label=y", seed=3)
    (folder / "Bern.csv").unlink()
    fewer = load_data(f"csv:{folder}:label=y", seed=3)
    other = load_data(f"csv:{folder}:label=y", seed=4)

    def held_out(data: Data, name: str) -> list[list[float]]:
        assert data.sites is not None
        rows: list[list[float]] = data.test.features[data.sites.test == data.sites.names.index(name)].tolist()
        return rows

    assert held_out(everybody, "Graz") == held_out(fewer, "Graz")
    assert held_out(fewer, "Graz") != held_out(other, "Graz")


def test_npz_and_parquet_are_read_by_site_too(tmp_path: Path) -> None:
    """An archive a site; a table a site."""
    for number, name in enumerate(NAMES):
        features, labels = make_site(number)
        np.savez(tmp_path / f"{name}.npz", features=features, labels=labels)
    data = load_data(f"npz:{tmp_path}")
    assert data.sites is not None
    assert (data.sites.names, len(data.train), len(data.test)) == (tuple(sorted(NAMES)), 80, 20)
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    for number, name in enumerate(NAMES):
        features, labels = make_site(number)
        table = arrow.table({"place": features[:, 0], "dose": features[:, 1], "y": labels.tolist()})
        parquet.write_table(table, tmp_path / f"{name}.parquet")
    tables = load_data(f"parquet:{tmp_path}/*.parquet:label=y")
    assert np.array_equal(tables.train.features, data.train.features)


def test_sites_go_to_the_nodes_of_their_names(folder: Path) -> None:
    """Whatever the order of the nodes."""
    data, graph = load_data(f"csv:{folder}:label=y"), named_graph(folder)
    parts = deal(data, graph)
    assert graph.labels is not None
    for node, part in enumerate(parts):
        assert set(part.features[:, 0].tolist()) == {NAMES.index(graph.labels[node])}
    assert parts.remark == ""


def test_a_missing_and_a_surplus_site_are_refused_by_name(folder: Path) -> None:
    """Linz is a node without a file, Bern a file without a node."""
    data = load_data(f"csv:{folder}:label=y")
    with pytest.raises(InvalidParameterError, match=r"^data = ") as caught:
        deal(data, named_graph(folder, ("Graz", "Basel", "Zürich", "Ulm", "Linz")))
    assert "Bern is none" in str(caught.value)
    assert "Linz" in str(caught.value)
    with pytest.raises(InvalidParameterError, match="5 sites"):
        deal(data, parse_graph_spec("ring:6"))


def test_a_network_without_names_takes_sites_in_sorted_order(folder: Path) -> None:
    """And one line says who got what."""
    parts = deal(load_data(f"csv:{folder}:label=y"), parse_graph_spec("ring:5"))
    assert [NAMES[int(part.features[0, 0])] for part in parts] == sorted(NAMES)
    assert "Basel to 0" in parts.remark
    assert "Zürich to 4" in parts.remark


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda folder: write_site(folder / "Ulm.csv", 3, header="place,amount,y"), "Ulm.csv.*amount, dose"),
        (lambda folder: write_site(folder / "Ulm.csv", 3, rows=3), "Ulm.csv"),
        (lambda folder: (folder / "Ulm.csv").write_text("place,dose,y\n" + "1,2,3\n1,2,4\n" * 9), "Ulm.csv.*numbers"),
        (lambda folder: (folder / "Ulm.csv").write_text("place,dose,y\n" + "1,2,Yes\n" * 9), "Ulm.csv.*'Yes'.*'yes'"),
        (lambda folder: (folder / "Ulm.csv").write_text("place,dose,y\n1,x,yes\n" * 2), "Ulm.csv, line"),
    ],
)
def test_a_site_that_does_not_fit_is_refused_by_its_file(folder: Path, change: Any, says: str) -> None:
    """Other columns, too few rows, labels of another kind, classes spelt otherwise, a cell that is no number."""
    change(folder)
    with pytest.raises((InputFileError, InvalidParameterError), match=says):
        load_data(f"csv:{folder}:label=y")


def test_no_file_and_one_file_are_refused(folder: Path, tmp_path: Path) -> None:
    """With what is needed."""
    with pytest.raises(InvalidParameterError, match=r"^data = "):
        load_data(f"csv:{folder}/none*.csv")
    (tmp_path / "alone").mkdir()
    write_site(tmp_path / "alone" / "Graz.csv", 0)
    with pytest.raises(InvalidParameterError, match=r"^data = .*two or more"):
        load_data(f"csv:{tmp_path / 'alone'}")


def test_a_dict_and_a_list_are_sites_in_python(folder: Path) -> None:
    """Names go to nodes of these names; a list in its order, and the names of nodes do not matter."""
    by_name = {name: make_site(number) for number, name in enumerate(NAMES)}
    graph = named_graph(folder)
    parts = deal(data_of_sites(by_name), graph)
    assert graph.labels is not None
    assert [NAMES[int(part.features[0, 0])] for part in parts] == list(graph.labels)
    in_order = deal(data_of_sites([make_site(number) for number in range(12)]), parse_graph_spec("ring:12"))
    assert [part.features[0, 0] for part in in_order] == list(range(12))
    with pytest.raises(InvalidParameterError, match="pair"):
        data_of_sites({"Graz": np.zeros((9, 2)), "Ulm": make_site(1)})  # type: ignore[dict-item]


def test_every_site_has_its_score_and_its_own_baseline(folder: Path) -> None:
    """Held-out rows counted, accuracy by hand, the commonest class of the site's own training rows."""
    data = load_data(f"csv:{folder}:label=y")
    learner = make_learner("softmax", n_features=2, n_classes=2)
    # Always no, whose number is 0.
    params = {"weight": np.zeros((2, 2), dtype=np.float32), "bias": np.array([1, 0], dtype=np.float32)}
    scores = score_sites(learner, params, data)
    assert data.sites is not None
    assert [score["name"] for score in scores] == sorted(NAMES)
    for number, score in enumerate(scores):
        labels = data.test.labels[data.sites.test == number]
        own = data.train.labels[data.columns["site"] == score["name"]]
        assert (score["rows"], score["measure"]) == (len(labels), "accuracy")
        assert score["score"] == pytest.approx((labels == 0).mean())
        assert score["baseline"] == pytest.approx((labels == np.bincount(own).argmax()).mean())
    assert score_sites(learner, params, load_data("digits")) == []


def test_a_site_of_numbers_is_scored_by_its_loss() -> None:
    """Beside the error of always saying the mean of its own training rows."""
    sites = {name: (make_site(number)[0], make_site(number)[0][:, 1] + number) for number, name in enumerate(NAMES)}
    data = data_of_sites(sites)
    learner = make_learner("linear", n_features=2, n_classes=0)
    params = {"weight": np.zeros((1, 2), dtype=np.float32), "bias": np.zeros(1, dtype=np.float32)}
    assert data.sites is not None
    for number, score in enumerate(score_sites(learner, params, data)):
        labels = data.test.labels[data.sites.test == number].astype(np.float64)
        own = data.train.labels[data.columns["site"] == score["name"]]
        assert score["measure"] == "loss"
        assert score["score"] == pytest.approx(np.square(labels).mean(), rel=1e-5)
        assert score["baseline"] == pytest.approx(np.square(labels - own.mean(dtype=np.float64)).mean(), rel=1e-5)


def test_a_run_deals_by_site_without_being_asked(folder: Path) -> None:
    """The partition is left out; rows to predict are those of all sites."""
    named_graph(folder)
    spec = make_spec(
        graph=f"file:{folder.parent / 'net.txt'}", data=f"csv:{folder}:label=y", updates=20, attack=0, compare="none"
    )
    scenario = Scenario.from_spec(spec)
    assert scenario.spec.learning.partition == "natural:site"
    assert scenario.partitions.sizes.sum() == len(scenario.data.train)
    assert scenario.data.sites is not None
    features, labels = load_rows(f"csv:{folder}:label=y", n_features=2)
    assert labels is not None
    assert (features.shape, len(labels)) == ((110, 2), 110)
