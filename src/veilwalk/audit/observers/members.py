"""Members that use everything they see: a destination with its memory, one relay, a coalition."""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np

from veilwalk.audit._scene import require
from veilwalk.audit._settings import Plan
from veilwalk.audit.inference.filter import EVERY, Filter, straight_back
from veilwalk.audit.observers._filtered import CERTAIN, Filtered, FilteredAlone, following, thinned
from veilwalk.core.arrays import FloatArray, IntArray, normalised

# Numbers of updates behind its back that it tells apart; each costs as much as not to count at all. None at all is the
# one that makes it certain. Where paths are sampled it does not count.
_TOLD_APART = 4


class Memory(FilteredAlone):
    """A destination by itself that uses its whole past, and the update counts that it reads: a coalition of one.

    If it made the update before the one it opens, the count says so, and it knows whom it had sealed that one for.
    """

    name = "memory"
    sees = "last hop, and all earlier visits of the token: times, ciphertexts, own updates and draws, update counts"
    told_apart = _TOLD_APART

    @classmethod
    def updates_between(cls, plan: Plan) -> float:
        """As many as for any single node, and that for each count it tells apart."""
        return super().updates_between(plan) * (_TOLD_APART + 1)

    @cached_property
    def answers(self) -> tuple[IntArray, FloatArray]:
        """Some updates that went to a destination which was one before, and who made them."""
        ends = thinned(require(self.visits, "came to a destination for the second time"), self.most)
        masks = self.watching(ends)
        return ends[:, 1], self.filtered.opened(self.logs(ends, masks), masks, self.scene.progress)

    def facts(self) -> dict[str, float]:
        """Return how often it is certain, and how often the count alone makes it so, which is exact."""
        found = super().facts() | {"certain": float((self.answers[1] > CERTAIN).any(axis=1).mean())}
        if not self.sampled(self.scene.plan):
            law = self.scene.law
            back = law.matrix.multiply(law.matrix.T).sum(axis=1)
            found["certain_by_count_predicted"] = float(law.source_prior @ back)
        return found


class Neighbour(FilteredAlone):
    """A relay that hands on a ciphertext and gets another one back: straight back, and it knows the maker for certain.

    It is asked about every ciphertext when it first holds it, by all that it knows then.
    """

    name = "neighbour"
    sees = "one relay: every ciphertext it passes on, with times; the first sight of each is scored"

    @classmethod
    def updates_between(cls, plan: Plan) -> float:
        """Every other ciphertext passes a relay, and is followed there and back."""
        del plan
        return 4.0

    @classmethod
    def hops_between(cls, plan: Plan) -> float:
        """From one sight of a new ciphertext to the next."""
        return max(plan.scheme.graph.n_nodes, plan.scheme.price.hops)

    @property
    def prior(self) -> FloatArray:
        """How often each node makes updates: whom they are for, a relay does not know."""
        return np.tile(self.scene.scheme.source_prior, (self.scene.graph.n_nodes, 1))

    @cached_property
    def answers(self) -> tuple[IntArray, FloatArray]:
        """Updates that relays saw between two openings of their own, each scored for one relay."""
        # Between two openings of its own so many ciphertexts pass a relay: it is passed once in as many hops as nodes.
        passed = min(self.scene.graph.n_nodes / 2, self.scene.scheme.price.hops)
        most = math.ceil(self.most / passed)
        ends = thinned(require(self.visits, "came to a destination for the second time"), max(most, 4))
        masks = self.watching(ends)
        weights, rows = self.filtered.first_sights(self.logs(ends, masks), masks, self.scene.progress)
        rows, first = np.unique(rows, return_index=True)
        return rows, weights[first]

    def facts(self) -> dict[str, float]:
        """Return how often a maker is known for certain: to some relay, and to one relay of what it sees."""
        scene = self.scene
        back = straight_back(scene.scheme, scene.settings, seen=scene.seen, lanes=scene.lane)
        predicted = scene.scheme.certain_to_a_relay()
        facts = super().facts() | {
            "certain_to_a_relay": back,
            "certain_at_first_sight": float((self.answers[1] > CERTAIN).any(1).mean()),
        }
        return facts if predicted is None else facts | {"certain_to_a_relay_predicted": predicted}


class Coalition(Filtered):
    """The strongest coalition: nothing that its members see is left unused."""

    name = "coalition"
    sees = "colluders share everything: sightings of all ciphertexts with their times, own draws, update counts"
    colluding = True
    told_apart = EVERY
    # It is the strongest: without it an audit says little of colluders.
    default_minutes = 20.0

    @classmethod
    def updates_between(cls, plan: Plan) -> float:
        """Some colluder is chosen every so many updates, and between sightings the token does not get far."""
        return float(plan.scheme.graph.n_nodes / cls.watchers(plan) ** 1.5)

    @classmethod
    def watchers(cls, plan: Plan) -> int:
        """All of them."""
        return plan.colluders or plan.settings.colluders or max(round(plan.scheme.graph.n_nodes / 10), 1)

    @classmethod
    def hops_between(cls, plan: Plan) -> float:
        """From one opening by a colluder to the next."""
        return plan.scheme.price.hops * plan.scheme.graph.n_nodes / cls.watchers(plan)

    @property
    def prior(self) -> FloatArray:
        """None of themselves: their own updates they know."""
        return self.scene.honest_prior

    @cached_property
    def openings(self) -> IntArray:
        """Pairs of openings by colluders that follow each other, where somebody else made what was opened last."""
        scene = self.scene
        rows = np.flatnonzero(scene.member[scene.seen.destination])
        ends = following(rows, scene.lane[rows])
        return require(ends[~scene.own[ends[:, 1]]], "went to a colluder from somebody else")

    def chosen(self) -> IntArray:
        """Return the openings it is asked about."""
        return thinned(self.openings, self.most)

    @cached_property
    def answers(self) -> tuple[IntArray, FloatArray]:
        """The updates that went to a colluder from somebody else, and who made them."""
        ends, scene, filtered = self.chosen(), self.scene, self.filtered
        if isinstance(filtered, Filter):
            return ends[:, 1], filtered.opened(self.logs(ends, scene.member), scene.member, scene.progress)
        rows, weights = self.held
        return ends[:, 1], weights[np.searchsorted(rows, ends[:, 1])]

    @cached_property
    def held(self) -> tuple[IntArray, FloatArray]:
        """All updates that a colluder held between these openings, ascending, and who made them."""
        scene, filtered = self.scene, self.filtered
        if isinstance(filtered, Filter):
            raise TypeError("the exact filter answers for what is opened")
        logs = self.logs(self.chosen(), scene.member)
        weights, rows = filtered.held(logs, scene.member, scene.progress)
        order = np.argsort(rows)
        return rows[order], weights[order]

    def facts(self) -> dict[str, float]:
        """Return also, of all updates by others, how many they held, and how many they expect to name.

        Those are the means of their best guesses; of what none of them ever held it is a blind one.
        """
        facts = super().facts()
        if facts:
            rows, weights = self.held
            made = int((self.chosen() @ np.array([-1, 1]) - 1).sum())
            outside = normalised(np.where(self.scene.member, 0.0, self.scene.scheme.source_prior))
            named = weights.max(axis=1).sum() + (made - len(rows)) * outside.max()
            facts |= {"held_of_all": len(rows) / made, "expected_hits_of_all": float(named / made)}
        return facts
