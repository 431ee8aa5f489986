"""Epsilon of a noisy run, in the two cases: the receiver may know who made an update, or was measured not to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from veilwalk.core.arrays import FloatArray
from veilwalk.experiments._train_settings import PRIVATE, TrainSettings
from veilwalk.experiments._train_setup import Setup
from veilwalk.learning import NodePrivacyAccountant, NoisyUpdate, SenderPosterior, TrainingTrace

_LEAST_MEASURED = 100


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
    found = {name: _known(settings, trace) for name, trace in traces.items() if name != "central"}
    unknown = _unknown(setup, traces[PRIVATE], top_posteriors)
    found[PRIVATE] |= {"epsilon_sender_unknown": unknown}
    known, counted = found[PRIVATE]["epsilon_sender_known"], found[PRIVATE]["most_updates_of_a_node"]
    sentence = (
        f"Noise of {settings.noise:g} times the clip norm {settings.clip:g}: whether one node's data, all of them, "
        f"were used is hidden with epsilon <= {_number(known)} at delta {settings.delta:g}, sender known (the node "
        f"with most updates, {counted}; holds against everybody together)"
    )
    if unknown is None:
        need = "one token, and exact posteriors of 100 deliveries"
        sentence += f"; the case of an unknown sender was not used: it needs {need}"
    else:
        sentence += (
            f", and <= {_number(unknown)}, sender unknown (against one receiver, justified by the exact posteriors of "
            f"this run's {len(traces[PRIVATE])} deliveries; not against receivers together)"
        )
    return {
        "noise_multiplier": settings.noise,
        "clip": settings.clip,
        "delta": settings.delta,
        "algorithms": found,
        "sentence": sentence + ".",
    }


def _known(settings: TrainSettings, trace: TrainingTrace) -> dict[str, Any]:
    counted = int(np.bincount(trace.node).max(initial=0))
    accountant = NodePrivacyAccountant().compose(NoisyUpdate(settings.noise), counted)
    return {"epsilon_sender_known": accountant.get_epsilon(settings.delta), "most_updates_of_a_node": counted}


def _unknown(setup: Setup, trace: TrainingTrace, top_posteriors: FloatArray | None) -> float | None:
    # Posteriors are of one token; who opens several may know more.
    if top_posteriors is None or len(top_posteriors) < _LEAST_MEASURED or trace.n_models > 1:
        return None
    noise, opened = setup.settings.noise, int(np.bincount(trace.node).max())
    measured = SenderPosterior.measured(top_posteriors, origin="exact last-hop posteriors of this run")
    accountant = NodePrivacyAccountant().compose(NoisyUpdate(noise, measured), opened)
    accountant.compose(NoisyUpdate(noise, SenderPosterior.of_law(setup.law)), len(trace) - opened)
    return accountant.get_epsilon(setup.settings.delta)


def _number(value: float) -> str:
    return f"{value:.3g}" if np.isfinite(value) else "infinity"
