"""A destination that remembers."""

from __future__ import annotations

from functools import cached_property

from veilwalk.audit._plan import Plan
from veilwalk.audit._scene import require
from veilwalk.audit.observers._filtered import CERTAIN, FilteredAlone, thinned
from veilwalk.core.arrays import FloatArray, IntArray

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
