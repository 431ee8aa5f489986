"""Several updates known to have one source: by a fingerprint in the content, say. Whose they are is not granted."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from veilwalk.audit._scene import require
from veilwalk.audit._settings import Plan
from veilwalk.audit.inference import Posterior
from veilwalk.audit.observers._base import Place
from veilwalk.audit.observers._filtered import Filtered, thinned
from veilwalk.audit.observers.members import Coalition, Neighbour
from veilwalk.audit.observers.single import LastHop
from veilwalk.core.arrays import FloatArray, IntArray, normalised

#: How many updates of one source are joined.
LINKED = (1, 2, 4, 8)
_LINKED_SIGHTS = (1, 2, 4, 8, 16)
_RELAYS = 4
# Fewer answers make too few groups.
_LEAST_ANSWERS = 256


class Repeated(LastHop):
    """A last-hop observer that is granted which updates belong together."""

    name, sees = "repeated", "several last-hop sightings known to have one source"
    of_plain = looks_up = False
    links = LINKED

    def joined(self, place: Place, groups: Sequence[IntArray]) -> list[Posterior]:
        """Return the prior times the product of likelihoods."""
        found = place.timing.evidence(place.seen)
        posteriors = []
        for joint in groups:
            guess = np.zeros((len(joint), len(place.prior)))
            prior = place.prior[found.candidates] if found.prior is None else found.prior
            guess[:, found.candidates] = _product(found.weights, prior, joint)
            posteriors.append(Posterior(guess, found.how))
        return posteriors


class LinkedCoalition(Coalition):
    """The strongest coalition, granted which of the updates that it opened belong together."""

    name, sees = "linked-coalition", "the coalition, of several updates known to have one source"
    links = _LINKED_SIGHTS
    least_answers, default_minutes = _LEAST_ANSWERS, Filtered.default_minutes

    def chosen(self) -> IntArray:
        """Return openings in sets of the largest size that there are, a source each."""
        return linked(self.openings, self.scene.alike[self.openings[:, 1]], max(self.links), self.most)

    def places(self) -> list[Place]:
        """Return one: they join updates that went to any of them."""
        scene, rows = self.scene, self.answers[0]
        to_members = (scene.scheme.source_prior * scene.member) @ scene.prior
        return [Place(-1, rows, scene.seen.at(rows), normalised(np.where(scene.member, 0.0, to_members)), None)]

    def joined(self, place: Place, groups: Sequence[IntArray]) -> list[Posterior]:
        """Return the prior of updates that go to members times the product of likelihoods."""
        found = self.posterior(place)
        weights = self.softened(found.weights, place.prior)
        return [Posterior(_product(weights, place.prior, joint), found.how) for joint in groups]


class LinkedNeighbour(Neighbour):
    """One relay, granted which of the ciphertexts that it passed on belong together."""

    name, sees = "linked-neighbour", "one relay, of several updates known to have one source"
    links = _LINKED_SIGHTS
    least_answers = _LEAST_ANSWERS

    @classmethod
    def updates_between(cls, plan: Plan) -> float:
        """However few are asked for, every relay is followed from one opening to the next so many times."""
        return plan.scheme.graph.n_nodes * _RELAYS * 2 * max(cls.links) / _LEAST_ANSWERS

    @classmethod
    def hops_between(cls, plan: Plan) -> float:
        """The same in hops."""
        return plan.scheme.price.hops * cls.updates_between(plan)

    @cached_property
    def answers(self) -> tuple[IntArray, FloatArray]:
        """All updates that a few relays saw, in as many lanes as there are."""
        return self._found[0], self._found[1]

    @cached_property
    def _found(self) -> tuple[IntArray, FloatArray, IntArray]:
        scene, ends = self.scene, require(self.visits, "came to a destination for the second time")
        nodes = scene.seen.destination[ends[:, 1]]
        relays = np.unique(nodes)[:: -(-scene.graph.n_nodes // _RELAYS)]
        # Two of three ciphertexts pass a relay before they are opened.
        each = 2 * max(self.links)
        ends = np.concatenate([thinned(ends[nodes == relay], each) for relay in relays])
        masks = self.watching(ends)
        logs = self.logs(ends, masks)
        weights, rows = self.filtered.first_sights(logs, masks, scene.progress)
        relay_of = {int(row): int(log.node[0]) for log in logs for row in log.row}
        rows, first = np.unique(rows, return_index=True)
        return rows, weights[first], np.array([relay_of[int(row)] for row in rows])

    def places(self) -> list[Place]:
        """Return one for each relay, with the mean of what it infers for a prior: it is calibrated."""
        rows, weights, relay = self._found
        return [
            Place(-1, rows[mine], self.scene.seen.at(rows[mine]), weights[mine].mean(axis=0), None)
            for mine in (np.flatnonzero(relay == node) for node in np.unique(relay))
        ]

    joined = LinkedCoalition.joined

    def facts(self) -> dict[str, float]:
        """Return nothing that the neighbour does not say."""
        return {}


def _product(weights: FloatArray, prior: FloatArray, groups: IntArray) -> FloatArray:
    """Return the prior times the product of likelihoods, each weight over prior."""
    with np.errstate(divide="ignore", invalid="ignore"):
        evidence = np.where(prior > 0.0, np.log(weights / prior), -np.inf)
        total = np.log(prior) + evidence[groups].sum(axis=1)
    return normalised(np.exp(total - total.max(axis=1, keepdims=True)))


def linked(ends: IntArray, alike: IntArray, size: int, most: int) -> IntArray:
    """Return pairs in sets of ``size`` that are alike, about ``most`` in all; smaller sets where there are none."""
    order = np.argsort(alike, kind="stable")
    _, begins, counts = np.unique(alike[order], return_index=True, return_counts=True)
    while size > counts.max():
        size //= 2
    place = np.arange(len(order)) - np.repeat(begins, counts)
    sets = order[place < np.repeat(counts // size * size, counts)].reshape(-1, size)
    return ends[np.sort(thinned(sets, max(most // size, 1)).ravel())]
