"""Schemes on a secret overlay: what they hide by symmetry, and what is recommended there."""

from __future__ import annotations

import math
import pickle
from pathlib import Path
from typing import Any

import pytest

from veilwalk.core.errors import InvalidParameterError
from veilwalk.design import (
    CoalitionLimits,
    approximate_read_share,
    choose_scheme,
    design,
    exposed_share,
    recommend,
    save_scheme,
)
from veilwalk.graphs import overlay, parse_graph_spec, random_regular

GRAPH = overlay(60, 3, seed=1)


def test_an_overlay_is_a_random_regular_graph_that_members_do_not_know() -> None:
    assert GRAPH.digest == random_regular(60, 3, seed=1).digest
    assert GRAPH.is_overlay
    assert parse_graph_spec("overlay:60:3:seed=1").is_overlay
    assert pickle.loads(pickle.dumps(GRAPH)).is_overlay  # noqa: S301
    assert not random_regular(60, 3, seed=1).is_overlay


def test_a_scheme_on_an_overlay_knows_no_distances_and_has_nameless_keys() -> None:
    scheme = choose_scheme(GRAPH, recipients=4)
    assert (scheme.law.name, scheme.walk.kind, scheme.hides_names) == ("far:2", "non-backtracking", True)
    other = scheme.deal_again(seed=2)
    assert other.hides_names
    assert other.graph.digest != GRAPH.digest


@pytest.mark.parametrize(
    ("options", "name"),
    [({"law": "far:3"}, "law"), ({"law": "uniform-node"}, "law"), ({"key_period": -1}, "key_period")],
)
def test_what_needs_a_known_graph_is_refused(options: dict[str, Any], name: str) -> None:
    with pytest.raises(InvalidParameterError) as error:
        choose_scheme(GRAPH, **options)
    assert error.value.name == name


def test_nameless_keys_are_refused_where_the_graph_is_known() -> None:
    with pytest.raises(InvalidParameterError) as error:
        choose_scheme(random_regular(60, 3, seed=1), key_period=10)
    assert error.value.name == "key_period"


def test_the_opener_of_a_design_has_the_exact_entropy_of_all_but_its_neighbours() -> None:
    result = design(GRAPH, recipients=8)
    assert result.exposure.node_entropy.interval == pytest.approx((math.log(56), math.log(56)))
    content = result.to_dict()
    assert content["named_in_the_long_run"][2]["at_most"] == pytest.approx(exposed_share(0.1, 3) + 1 / 54)
    assert content["mean_iteration_hops"] < 10


def test_more_overlays_name_more_members() -> None:
    assert exposed_share(0.1, 3) == pytest.approx(1 - 0.9**3)
    assert exposed_share(0.1, 3, overlays=4) == pytest.approx(1 - 0.9**12)
    assert approximate_read_share(1, 0.1, 300) == pytest.approx(0.1, abs=0.01)


def test_the_recommended_number_of_recipients_has_the_least_bytes_within_the_limits() -> None:
    found = recommend(GRAPH)
    assert found.meets_floor
    assert found.design.bytes_per_update == min(candidate.bytes_per_update for candidate in found.candidates)
    tight = recommend(GRAPH, limits=CoalitionLimits(most_read=0.2))
    (read,) = tight.design.exposure.read_by_colluders.values()
    assert read.mean <= 0.2
    assert read.mean == pytest.approx(approximate_read_share(tight.scheme.recipients, 0.1, 60), abs=0.03)
    assert tight.design.bytes_per_update > found.design.bytes_per_update
    with pytest.raises(InvalidParameterError):
        recommend(overlay(60, 5, seed=1))


def test_a_file_keeps_the_period_of_keys(tmp_path: Path) -> None:
    path = tmp_path / "scheme.npz"
    save_scheme(path, choose_scheme(GRAPH, recipients=4, key_period=77))
    assert choose_scheme(GRAPH, path).key_period == 77


def test_a_graphics_card_plays_no_overlay() -> None:
    with pytest.raises(InvalidParameterError) as error:
        choose_scheme(GRAPH, recipients=4).iter_updates(updates=10, seed=1, device="cuda")
    assert error.value.name == "device"
