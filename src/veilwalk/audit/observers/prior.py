"""Who knows the scheme and nothing else: the blind guess."""

from __future__ import annotations

import numpy as np

from veilwalk.audit.inference import Posterior
from veilwalk.audit.observers._base import Observer, Place


class Prior(Observer):
    """The prior over sources: the stationary law of the update chain times the law, or who opens of several."""

    name, sees = "prior", "that it was chosen"
    of_plain = looks_up = True

    def posterior(self, place: Place) -> Posterior:
        """Return the prior."""
        return Posterior(np.tile(place.prior, (len(place.rows), 1)), self._how())

    def _how(self) -> str:
        scheme = self.scene.scheme
        if scheme.recipients == 1:
            return "exact"
        if self.scene.plan.looked_up or not len(scheme.openings.joint):
            return "estimated: as often as each draws it, whoever is met first"
        return "estimated: sampled paths, sets summed out"
