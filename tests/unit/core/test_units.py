"""Numbers with their units."""

from __future__ import annotations

import pytest

from veilwalk.core.units import readable_bytes


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (999.6, "1 kB"), (2600, "2.6 kB"), (10_167_367, "10.2 MB"), (3.05e10, "30.5 GB")],
)
def test_bytes_are_read_with_three_digits(count: float, text: str) -> None:
    """Never as 1e+03."""
    assert readable_bytes(count) == text
