"""Ciphertexts that are sealed for several, as observers know them: the law of the set."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from veilwalk.core.arrays import BoolArray, FloatArray, IntArray
from veilwalk.design import Scheme


@dataclass(frozen=True, eq=False)
class Sets:
    """The law of the set of recipients, as ``_kernels_sealed`` reads it.

    Attributes:
        recipients: How many there are.
        weights: The law by columns: ``weights[j, i]`` is the probability that i, drawing one, draws j.
        eligible: How many each node may choose from.
        even: Whether it chooses evenly among them.
        pace: Of uneven rows, see ``walks.SetRows``.
        slope: And this too.
    """

    recipients: int
    weights: FloatArray
    eligible: IntArray
    even: BoolArray
    pace: FloatArray
    slope: FloatArray

    @classmethod
    def of(cls, scheme: Scheme) -> Sets | None:
        """Return those of a scheme; None where there is one recipient, and nothing to sum out."""
        if scheme.recipients == 1:
            return None
        from veilwalk.walks.compiled import set_rows

        rows = set_rows(scheme.graph, scheme.law.draws, scheme.recipients)
        weights = np.ascontiguousarray(scheme.law.matrix.toarray().T)
        return cls(scheme.recipients, weights, *rows.followed_by())

    def arguments(self) -> tuple[FloatArray, IntArray, BoolArray, FloatArray, FloatArray, int]:
        """Return the arrays in the order in which kernels take them."""
        return self.weights, self.eligible, self.even, self.pace, self.slope, self.recipients
