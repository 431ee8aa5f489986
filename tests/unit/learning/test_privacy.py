"""The accountant of a run: everybody together, sender known."""

from __future__ import annotations

import math
import sys

import pytest

dp_accounting = pytest.importorskip("dp_accounting")

from veilwalk.core.errors import ConfigError, InvalidParameterError  # noqa: E402
from veilwalk.learning import describe_privacy, epsilon_of, noise_for  # noqa: E402


def test_known_senders_are_one_gaussian() -> None:
    """Twelve updates of multiplier 3 are one of 3 / sqrt 12; nothing reveals nothing."""
    expected = dp_accounting.get_epsilon_gaussian(3 / math.sqrt(12), 1e-5)
    assert epsilon_of(3.0, 1e-5, updates=12) == pytest.approx(expected)
    assert epsilon_of(3.0, 1e-5, updates=0) == 0.0


def test_the_statement_says_against_whom_it_holds() -> None:
    """Everybody, who may know the sender."""
    known = describe_privacy(2.0, 1e-5, updates=3)
    assert "3 updates with noise multiplier 2, sender known" in known
    assert "against everybody together, sender known" in known


def test_noise_for_a_target_reaches_it_and_no_more() -> None:
    """The multiplier back through the accountant."""
    z = noise_for(8.0, 1e-5, updates=40)
    assert epsilon_of(z, 1e-5, updates=40) == pytest.approx(8.0, abs=1e-6)


def test_without_dp_accounting_the_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """No traceback from an import."""
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    with pytest.raises(ConfigError, match=r"veilwalk\[dp\]"):
        epsilon_of(1.234, 1e-5, updates=3)


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: epsilon_of(0.0, 1e-5, updates=1), "noise"),
        (lambda: epsilon_of(1.0, 1e-5, updates=-1), "updates"),
        (lambda: epsilon_of(1.0, 0.0, updates=1), "delta"),
        (lambda: noise_for(0.0, 1e-5, updates=1), "epsilon"),
    ],
)
def test_bad_parameters_are_refused_by_name(make: object, name: str) -> None:
    """One line that names the parameter."""
    with pytest.raises(InvalidParameterError, match=f"^{name} = "):
        make()  # type: ignore[operator]
