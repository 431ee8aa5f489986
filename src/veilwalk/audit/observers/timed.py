"""Destinations who look at the clock: the return time, and the neighbour the token came from."""

from __future__ import annotations

from veilwalk.audit.inference import Posterior
from veilwalk.audit.observers._base import Observer, Place


class ReturnTime(Observer):
    """Who counts the hops since the token last passed."""

    name, sees = "return-time", "hops since the token last passed, whole law"
    timed = looks_up = True

    def posterior(self, place: Place) -> Posterior:
        """Return what the law of return times tells."""
        return place.timing.posterior(place.seen, use_last_hop=self.use_last_hop)


class LastHop(ReturnTime):
    """Who also sees which neighbour it came from."""

    name, sees = "last-hop", "return time, and the neighbour it came from"
    of_plain = use_last_hop = True
