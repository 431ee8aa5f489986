"""The paper's figures as records, on few sampled graphs."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.records import Record
from veilwalk.core.support import DistanceSupport
from veilwalk.experiments import reproduce
from veilwalk.report import figure_files


@pytest.fixture(scope="module")
def side_information() -> Record:
    return reproduce("side-information", n_graphs=1)


@pytest.fixture(scope="module")
def probability() -> Record:
    return reproduce("probability", n_graphs=1)


def test_side_information_tells_printed_from_true(side_information: Record) -> None:
    """At short return times the printed curve stays at the maximum where the truth has fallen well below it."""
    for degree in (3, 4):
        rows = [row for row in side_information.result["rows"] if row["degree"] == degree]
        design = next(row for row in rows if row["return_time_seen"] == row["return_time_design"])
        for name in ("printed_nats", "corrected_nats", "exact_nats"):
            assert design[name] == pytest.approx(math.log(5), abs=2e-3)
        assert design["exact_uniform_nats"] < 1.36
        short = min(rows, key=lambda row: abs(row["return_time_seen"] - 24))
        assert short["printed_nats"] > 1.6
        assert short["exact_nats"] < 1.35
        assert abs(short["corrected_without_fht_nats"] - short["exact_nats"]) < 0.12


def test_long_return_times_agree_on_every_road(side_information: Record) -> None:
    """From the covered return time on, corrected and exact entropies agree to a hundredth of a nat."""
    rows = [row for row in side_information.result["rows"] if row["return_time_seen"] >= row["return_time_from"]]
    assert len(rows) > 10
    for row in rows:
        assert row["corrected_without_fht_nats"] == pytest.approx(row["exact_nats"], abs=0.01)
        assert row["exact_nats"] > row["floor_corrected_nats"] > row["floor_printed_nats"]


def test_probability_shows_what_the_return_law_really_covers(probability: Record) -> None:
    """Returns that retrace their way are a quarter at c = 3: beyond 75% nothing but the shortest is covered."""
    rows = [row for row in probability.result["rows"] if row["degree"] == 3]
    assert [row["probability"] for row in rows] == sorted((row["probability"] for row in rows), reverse=True)
    for row in rows:
        assert row["return_time_from_exact"] < row["return_time_from_corrected"]
        assert row["corrected_without_fht_nats"] >= row["floor_corrected_nats"]
        if row["probability"] > 0.8:
            assert row["return_time_from_exact"] < 10
    likely = next(row for row in rows if row["probability"] == pytest.approx(0.9))
    assert likely["printed_nats"] > 1.6
    assert likely["exact_nats"] < 1.3


def test_records_carry_parameters_seed_and_version(probability: Record) -> None:
    """Enough to make the figure again."""
    content = json.loads(probability.to_json())
    assert content["seed"] == 1
    assert content["params"]["n_graphs"] == 1
    assert content["version"]


def test_the_same_record_gives_the_same_bytes(side_information: Record, probability: Record, tmp_path: Path) -> None:
    """PNG, SVG, CSV and JSON, drawn twice."""
    for record in (side_information, probability):
        first = figure_files(record, tmp_path / "first")
        second = figure_files(record, tmp_path / "second")
        assert [path.name for path in first] == [path.name for path in second]
        for one, other in zip(first, second, strict=True):
            assert one.read_bytes() == other.read_bytes()
        assert first[0].read_bytes().startswith(b"\x89PNG")


def test_figures_say_what_they_show_in_words(side_information: Record, probability: Record, tmp_path: Path) -> None:
    """A finding at the top, in the record's own numbers; curves without labels of the paper's source."""
    for record, finding in (
        (side_information, "At short return times distance entropy is up to 0.48 nats below what is printed"),
        (probability, "With probability 0.9 there are at least "),
    ):
        drawn = figure_files(record, tmp_path)[1].read_text()
        assert f"<!-- {finding}" in drawn
        assert "shortest paths counted" in drawn
        assert "ass:" not in drawn


def test_printed_formulas_do_not_care_for_shortest_paths(side_information: Record) -> None:
    """So one curve stands for both; the corrected ones differ."""
    rows = side_information.result["rows"]
    assert max(abs(row["printed_nats"] - row["printed_without_fht_nats"]) for row in rows) < 1e-12
    assert max(abs(row["corrected_nats"] - row["corrected_without_fht_nats"]) for row in rows) > 0.1


def test_another_network_has_nothing_published() -> None:
    """Its own sizes and distances; those that it does not have are refused."""
    network: dict[str, Any] = {"n_nodes": 60, "degrees": (3,), "n_graphs": 1}
    record = reproduce("trade-off", support=DistanceSupport(2, 4), **network)
    assert record.params["support"] == "2:2 to 2:7"
    assert {row["published_hops"] for row in record.result["rows"]} == {None}
    assert record.result["rows"][0]["exact_hops"] < 120
    # Also where no sampled graph has the farthest distance that such graphs are expected to have.
    small: dict[str, Any] = {"n_nodes": 20, "degrees": (3,), "n_graphs": 1, "support": DistanceSupport(2, 3)}
    assert "NaN" not in reproduce("trade-off", seed=0, **small).to_json()
    with pytest.raises(InvalidParameterError, match=r"^support = '2:9'"):
        reproduce("side-information", support=DistanceSupport(2, 9), **network)
    with pytest.raises(InvalidParameterError, match="nodes \\* degree = 183"):
        reproduce("side-information", n_nodes=61, degrees=(4, 3))


def test_the_same_seed_gives_the_same_numbers_and_another_seed_others() -> None:
    """Records are functions of their parameters."""
    first, again, other = (reproduce("trade-off", n_graphs=1, seed=seed) for seed in (5, 5, 6))
    assert first.to_json() == again.to_json()
    assert first.to_json() != other.to_json()


def test_unknown_figures_and_records_are_refused(tmp_path: Path) -> None:
    """By name."""
    with pytest.raises(InvalidParameterError, match="moon"):
        reproduce("moon")
    with pytest.raises(InvalidParameterError, match="moon"):
        figure_files(Record(kind="moon", params={}, result={}), tmp_path)
