"""What a receiver knows of who made an update, in the form the privacy accountant needs.

The weight of a node is the probability, given all a receiver saw of the route, that this node made the update. A
weight w that comes up with probability s may be replaced by a larger weight W with probability s w / W: divergences
are convex in the weight and vanish with it, so that this can only overstate what leaks. All here is rounded that way.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from veilwalk.core import validate
from veilwalk.core.arrays import FloatArray
from veilwalk.core.errors import InvalidParameterError
from veilwalk.design import DestinationLaw

_LEAST_MEASURED = 100
_KEPT_WEIGHTS = 24


@dataclass(frozen=True, slots=True)
class SenderPosterior:
    """How likely a receiver can hold one node to be the source: ``weights`` that come up with ``shares``.

    Make one with :meth:`measured`, :meth:`from_mean` or :meth:`of_law`: a weight such as one over the number of
    nodes, which nobody measured, is no evidence.

    Attributes:
        shares: Probabilities of the weights; what is missing to one has weight zero.
        weights: Probabilities that the node is the source.
        origin: Where they come from, for the printed statement.
    """

    shares: tuple[float, ...]
    weights: tuple[float, ...]
    origin: str

    def __post_init__(self) -> None:
        shares, weights = np.array(self.shares), np.array(self.weights)
        if len(shares) != len(weights) or not np.all(shares >= 0) or not shares.sum() <= 1 + 1e-9:
            raise InvalidParameterError("shares", self.shares, "probabilities, one for each weight")
        if not np.all((weights >= 0) & (weights <= 1)):
            raise InvalidParameterError("weights", self.weights, "between 0 and 1")
        if not self.origin:
            raise InvalidParameterError("origin", self.origin, "where the posterior was measured")

    @property
    def mean_weight(self) -> float:
        """Probability that the node made an update, all observations taken together."""
        return float(np.dot(self.shares, self.weights))

    @classmethod
    def measured(
        cls, top_posteriors: npt.ArrayLike, *, origin: str, largest_share: float | None = None
    ) -> SenderPosterior:
        """Return the posterior from the highest posterior found for each of many audited updates.

        Of n measured values the next exceeds the k-th largest with probability at most k / (n + 1): each value
        counts once, and one more counts as certainty. That holds for an update drawn like the audited ones, by a
        receiver drawn like theirs; measure a receiver apart to speak of it alone.

        Args:
            top_posteriors: One for each audited update, 100 at least.
            origin: The audit and the observer.
            largest_share: The largest share that one node has among the updates one receiver gets, which bounds its
                mean weight; for updates straight from their maker, the weight of :meth:`of_law`. The node counts as
                the likeliest source where the top is highest, until that share is used up. Without it every update
                counts as if the node were the likeliest source.
        """
        values = np.asarray(top_posteriors, dtype=np.float64)
        if values.ndim != 1 or len(values) < _LEAST_MEASURED:
            raise InvalidParameterError("top_posteriors", values.shape, f"at least {_LEAST_MEASURED} measured values")
        if not np.all((values > 0) & (values <= 1 + 1e-9)):
            raise InvalidParameterError("top_posteriors", "values", "above 0 and at most 1")
        weights = np.append(np.minimum(values, 1.0), 1.0)
        shares = np.full(len(weights), 1 / len(weights))
        if largest_share is not None:
            _check_share(largest_share)
            # All of a node's weight may fall on the most telling updates: to spread it evenly would understate.
            order = np.argsort(-weights, kind="stable")
            mass = (shares * weights)[order]
            shares[order] = np.clip(largest_share - (np.cumsum(mass) - mass), 0.0, mass) / weights[order]
        return cls(*_rounded_up(shares, weights), origin=f"{origin}, {len(values)} updates measured")

    @classmethod
    def from_mean(cls, top_posterior: float, *, origin: str) -> SenderPosterior:
        """Return what the mean of top posteriors justifies alone: with that probability, certainty.

        Give the upper end of its interval. A mean says nothing about how the values spread, so the source counts as
        known with this probability and as somebody else otherwise.
        """
        _check_share(top_posterior)
        return cls((float(top_posterior),), (1.0,), origin=f"{origin}, mean only")

    @classmethod
    def of_law(cls, law: DestinationLaw) -> SenderPosterior:
        """Return what ``law`` leaves open about an update that the receiver never opened.

        Even told who made the next one, j, it knows no more than the chain of updates run backwards:
        mu_i P_ij / mu_j. Exact for the law, no measurement.
        """
        prior = law.source_prior
        flow = law.matrix.multiply(prior[:, np.newaxis]).tocsc()
        largest = float((flow.max(axis=0).toarray().ravel() / prior).max())
        return cls((float(prior.max()) / largest,), (largest,), origin="destination law, exact")

    def to_dict(self) -> dict[str, Any]:
        """Return plain data that :meth:`from_dict` reads."""
        return {"shares": list(self.shares), "weights": list(self.weights), "origin": self.origin}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> SenderPosterior:
        """Read what :meth:`to_dict` wrote."""
        return cls(tuple(content["shares"]), tuple(content["weights"]), str(content["origin"]))


def _check_share(share: float) -> None:
    validate.more_than(0, share=share)
    if share > 1:
        raise InvalidParameterError("share", share, "at most 1")


def _rounded_up(shares: FloatArray, weights: FloatArray) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Round weights up to a few, keeping the mean; certainty stays apart."""
    edges = np.append(np.geomspace(weights.min(), weights[weights < 1].max(initial=weights.min()), _KEPT_WEIGHTS), 1.0)
    index = np.minimum(np.searchsorted(edges, weights * (1 - 1e-12)), len(edges) - 1)
    moved = np.bincount(index, weights=shares * weights / edges[index], minlength=len(edges))
    kept = moved > 0
    return tuple(moved[kept].tolist()), tuple(edges[kept].tolist())
