"""Epsilon of a noisy run, in the two cases: the receiver may know who made an update, or was measured not to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from veilwalk.core.arrays import FloatArray
from veilwalk.design import DestinationLaw
from veilwalk.experiments._train_settings import PRIVATE, TrainSettings
from veilwalk.experiments._train_setup import Setup
from veilwalk.learning import NodePrivacyAccountant, NoisyUpdate, SenderPosterior, TrainingTrace

_LEAST_MEASURED = 100
_UNKNOWN_NEEDS = "one token, and exact posteriors of 100 deliveries"


def require_accountant(settings: TrainSettings) -> None:
    """Find out before training that epsilon cannot be computed here."""
    if settings.noise:
        NodePrivacyAccountant().compose(NoisyUpdate(settings.noise)).get_epsilon(settings.delta)


def privacy(
    setup: Setup, traces: Mapping[str, TrainingTrace], top_posteriors: FloatArray | None
) -> dict[str, Any] | None:
    """Return epsilon of every algorithm for the node that is worst off; None without noise.

    ``top_posteriors`` are the largest weights of the exact posteriors of the private run's deliveries; without them
    only the case of a known sender can be accounted.
    """
    settings = setup.settings
    if not settings.noise:
        return None
    accountants = {name: _known(settings.noise, trace) for name, trace in traces.items() if name != "central"}
    found: dict[str, dict[str, Any]] = {
        name: {
            "epsilon_sender_known": accountant.get_epsilon(settings.delta),
            "most_updates_of_a_node": _most(traces[name]),
        }
        for name, accountant in accountants.items()
    }
    lines = [f"Noise of {settings.noise:g} times the clip norm {settings.clip:g}, for the node with most updates."]
    lines.append(accountants[PRIVATE].statement(settings.delta))
    # Posteriors are of one token; who opens several may know more.
    if top_posteriors is None or len(top_posteriors) < _LEAST_MEASURED or traces[PRIVATE].n_models > 1:
        found[PRIVATE]["epsilon_sender_unknown"] = None
        lines.append(f"The case of an unknown sender was not used: it needs {_UNKNOWN_NEEDS}.")
    else:
        unknown = sender_unknown(setup.law, traces[PRIVATE], top_posteriors, noise=settings.noise)
        found[PRIVATE]["epsilon_sender_unknown"] = unknown.get_epsilon(settings.delta)
        lines.append(unknown.statement(settings.delta))
    return {
        "noise_multiplier": settings.noise,
        "clip": settings.clip,
        "delta": settings.delta,
        "algorithms": found,
        "sentence": "\n".join(lines),
    }


def sender_unknown(
    law: DestinationLaw, trace: TrainingTrace, top_posteriors: FloatArray, *, noise: float
) -> NodePrivacyAccountant:
    """Return the account of a receiver who does not know senders: the one that opened most updates of ``trace``.

    What it opened counts with the measured posteriors, no node's share of it above what ``law`` gives; all other
    updates, which it sees inside later models, with what the law leaves open.
    """
    unopened = SenderPosterior.of_law(law)
    measured = SenderPosterior.measured(
        top_posteriors, origin="exact last-hop posteriors of this run", largest_share=unopened.weights[0]
    )
    opened = _most(trace)
    accountant = NodePrivacyAccountant().compose(NoisyUpdate(noise, measured), opened)
    return accountant.compose(NoisyUpdate(noise, unopened), len(trace) - opened)


def _known(noise: float, trace: TrainingTrace) -> NodePrivacyAccountant:
    return NodePrivacyAccountant().compose(NoisyUpdate(noise), _most(trace))


def _most(trace: TrainingTrace) -> int:
    """Updates of the node that made, and so opened, most."""
    return int(np.bincount(trace.node).max(initial=0))
