"""Who knows the scheme and nothing else: the blind guess."""

from __future__ import annotations

import numpy as np

from veilwalk.audit.inference import Posterior
from veilwalk.audit.observers._base import Observer, Place


class Prior(Observer):
    """The prior over sources: the stationary law of the update chain times the law."""

    name, sees = "prior", "that it was chosen"
    of_plain = looks_up = True

    def posterior(self, place: Place) -> Posterior:
        """Return the prior."""
        return Posterior(np.tile(place.prior, (len(place.rows), 1)), "exact")
