"""Which network ``veilwalk cluster up`` deals where none is named."""

from __future__ import annotations

import pytest

from veilwalk.cli._cluster import _name_network
from veilwalk.design import recommend
from veilwalk.graphs import parse_graph_spec


@pytest.mark.parametrize(
    ("nodes", "degree", "is_published", "kind"),
    [(20, 3, False, "overlay"), (6, 3, False, "overlay"), (4, 3, False, "rrg"), (20, 3, True, "rrg")],
)
def test_a_network_has_somebody_to_seal_for(nodes: int, degree: int, is_published: bool, kind: str) -> None:
    """An overlay where it can be; the scheme that is recommended on it exists."""
    spec = _name_network(nodes, degree, 2, is_published=is_published)
    assert spec == f"{kind}:{nodes}:{degree}:seed=2"
    if nodes < 20:
        assert recommend(parse_graph_spec(spec)).scheme.recipients >= 1
