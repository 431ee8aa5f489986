"""The accountant of a run: everybody together, sender known."""

from __future__ import annotations

import math
import sys

import pytest

dp_accounting = pytest.importorskip("dp_accounting")

from veilwalk.core.errors import ConfigError, InvalidParameterError  # noqa: E402
from veilwalk.learning import NodePrivacyAccountant, NoisyUpdate, noise_for  # noqa: E402


def test_known_senders_are_one_gaussian() -> None:
    """Twelve updates of multiplier 3 are one of 3 / sqrt 12; nothing reveals nothing."""
    expected = dp_accounting.get_epsilon_gaussian(3 / math.sqrt(12), 1e-5)
    assert NodePrivacyAccountant().compose(NoisyUpdate(3.0), 12).get_epsilon(1e-5) == pytest.approx(expected)
    assert NodePrivacyAccountant().get_epsilon(1e-5) == 0.0


def test_the_statement_says_against_whom_it_holds() -> None:
    """Everybody, who may know the sender."""
    known = NodePrivacyAccountant().compose(NoisyUpdate(2.0), 3).statement(1e-5)
    assert "3 updates with noise multiplier 2, sender known" in known
    assert "against everybody together, sender known" in known


def test_noise_for_a_target_reaches_it_and_no_more() -> None:
    """The multiplier back through the accountant."""
    z = noise_for(8.0, 1e-5, updates=40)
    assert NodePrivacyAccountant().compose(NoisyUpdate(z), 40).get_epsilon(1e-5) == pytest.approx(8.0, abs=1e-6)


def test_without_dp_accounting_the_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """No traceback from an import."""
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    with pytest.raises(ConfigError, match=r"veilwalk\[dp\]"):
        NodePrivacyAccountant().compose(NoisyUpdate(1.234), 3).get_epsilon(1e-5)


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: NoisyUpdate(0.0), "noise_multiplier"),
        (lambda: NodePrivacyAccountant().compose(NoisyUpdate(1.0), -1), "count"),
        (lambda: NodePrivacyAccountant().get_epsilon(0.0), "delta"),
        (lambda: noise_for(0.0, 1e-5, updates=1), "epsilon"),
    ],
)
def test_bad_parameters_are_refused_by_name(make: object, name: str) -> None:
    """One line that names the parameter."""
    with pytest.raises(InvalidParameterError, match=f"^{name} = "):
        make()  # type: ignore[operator]
