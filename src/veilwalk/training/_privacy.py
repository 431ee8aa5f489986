"""Epsilon of a noisy run, against everybody together: whoever sees every model and knows who made it.

A smaller one against somebody who does not know who made what is not printed: one relay can be certain of a maker, and
whoever made an update drew the next maker itself. See the page on privacy accounting.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from veilwalk.learning import NodePrivacyAccountant, NoisyUpdate, TrainingTrace
from veilwalk.training._scenario import Scenario
from veilwalk.training._settings import PRIVATE

AGAINST = "everybody, sender known"


def require_accountant(scenario: Scenario, delta: float) -> None:
    """Find out before training that epsilon cannot be computed here."""
    noise = scenario.protection.noise
    if noise:
        NodePrivacyAccountant().compose(NoisyUpdate(noise)).get_epsilon(delta)


def privacy(scenario: Scenario, planned: Mapping[str, TrainingTrace], *, delta: float) -> dict[str, Any] | None:
    """Return epsilon of every algorithm for the node that is worst off; None without noise.

    ``planned`` are the updates that each could have made. Where a run ends early because of what it learnt, when it
    ended is told by the data: to count only the updates it made would understate what they reveal.
    """
    protection = scenario.protection
    if not protection.noise:
        return None
    event, releases = NoisyUpdate(protection.noise), protection.releases(scenario.learner)
    most = {name: _most(trace, protection.most_updates) for name, trace in planned.items() if name != "central"}
    accountants = {
        name: NodePrivacyAccountant(unit=protection.unit).compose(event, count * releases)
        for name, count in most.items()
    }
    found: dict[str, dict[str, Any]] = {
        name: {"epsilon_sender_known": accountant.get_epsilon(delta), "most_updates_of_a_node": most[name]}
        for name, accountant in accountants.items()
    }
    what = "a row's gradient" if protection.rows else "an update"
    about = f"Noise of {protection.noise:.4g} times the norm {protection.clip:g} to which {what} is clipped"
    lines = [f"{about}; for the node with most updates.", accountants[PRIVATE].statement(delta)]
    return {
        "unit": protection.unit,
        "noise_multiplier": protection.noise,
        "clip": protection.clip,
        "delta": delta,
        "against": AGAINST,
        "algorithms": found,
        "sentence": "\n".join(lines),
    }


def _most(trace: TrainingTrace, limit: int) -> int:
    """Updates of the node that makes most; no more than the limit, after which it hands models on as they are."""
    most = int(np.bincount(trace.node).max(initial=0))
    return min(most, limit) if limit else most
