"""Numbers with their units."""

from __future__ import annotations

import pytest

from veilwalk.core.units import readable_bytes, readable_seconds


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (999.6, "1 kB"), (2600, "2.6 kB"), (10_167_367, "10.2 MB"), (3.05e10, "30.5 GB")],
)
def test_bytes_are_read_with_three_digits(count: float, text: str) -> None:
    """Never as 1e+03."""
    assert readable_bytes(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 s"),
        (0.123, "0.12 s"),
        (119.4, "119 s"),
        (121, "2 min"),
        (5400, "90 min"),
        (9000, "2.5 h"),
        (4e5, "4.6 days"),
    ],
)
def test_durations_are_read_in_the_unit_that_fits(seconds: float, text: str) -> None:
    """Seconds up to two minutes, minutes up to two hours, hours up to two days."""
    assert readable_seconds(seconds) == text
