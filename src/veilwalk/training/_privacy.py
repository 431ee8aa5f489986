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
    if scenario.noise:
        NodePrivacyAccountant().compose(NoisyUpdate(scenario.noise)).get_epsilon(delta)


def privacy(scenario: Scenario, planned: Mapping[str, TrainingTrace], *, delta: float) -> dict[str, Any] | None:
    """Return epsilon of every algorithm for the node that is worst off; None without noise.

    ``planned`` are the updates that each could have made. Where a run ends early because of what it learnt, when it
    ended is told by the data: to count only the updates it made would understate what they reveal.
    """
    noise, clip = scenario.noise, scenario.clip
    if not noise:
        return None
    most = {name: _most(trace) for name, trace in planned.items() if name != "central"}
    accountants = {name: NodePrivacyAccountant().compose(NoisyUpdate(noise), count) for name, count in most.items()}
    found: dict[str, dict[str, Any]] = {
        name: {"epsilon_sender_known": accountant.get_epsilon(delta), "most_updates_of_a_node": most[name]}
        for name, accountant in accountants.items()
    }
    # The record's format keeps the key; no figure of this kind has been proved.
    found[PRIVATE]["epsilon_sender_unknown"] = None
    lines = [f"Noise of {noise:g} times the clip norm {clip:g}, for the node with most updates."]
    lines.append(accountants[PRIVATE].statement(delta))
    return {
        "noise_multiplier": noise,
        "clip": clip,
        "delta": delta,
        "against": AGAINST,
        "algorithms": found,
        "sentence": "\n".join(lines),
    }


def _most(trace: TrainingTrace) -> int:
    """Updates of the node that makes most."""
    return int(np.bincount(trace.node).max(initial=0))
