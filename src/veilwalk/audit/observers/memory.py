"""A destination that remembers."""

from __future__ import annotations

from functools import cached_property

from veilwalk.audit._scene import require
from veilwalk.audit.observers._filtered import FilteredAlone, thinned
from veilwalk.core.arrays import FloatArray, IntArray


class Memory(FilteredAlone):
    """A destination by itself that uses its whole past: a coalition of one.

    It does not read update counts: they would add a little, and cost as many times as there are updates it did not see.
    """

    name = "memory"
    sees = "last hop, and all earlier visits of the token: times, ciphertexts, own updates and own draws"

    @cached_property
    def answers(self) -> tuple[IntArray, FloatArray]:
        """Some updates that went to a destination which was one before, and who made them."""
        ends = thinned(require(self.visits, "came to a destination for the second time"), self.most)
        masks = self.watching(ends)
        return ends[:, 1], self.filter(counted=False).opened(self.logs(ends, masks), masks, self.scene.progress)
