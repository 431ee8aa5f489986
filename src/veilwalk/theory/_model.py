"""Describes a simple walk on a random regular graph: the value every closed form takes, and its shell sizes."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from veilwalk.core import validate
from veilwalk.core.arrays import FloatArray
from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.support import DistanceSupport

# In mean lifetimes 1/a of a walk that lost its target: e to a power not much larger is no number any more.
_WIDEST = 500.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WalkModel:
    """A simple random walk on a random regular graph of ``n_nodes`` (N) nodes and degree ``degree`` (c)."""

    n_nodes: int
    degree: int

    def __post_init__(self) -> None:
        validate.integer(nodes=self.n_nodes, degree=self.degree)
        validate.at_least(3, degree=self.degree)
        validate.at_least(self.degree + 1, nodes=self.n_nodes)
        if self.n_nodes * self.degree % 2:
            raise InvalidParameterError("nodes * degree", self.n_nodes * self.degree, "even: every edge has two ends")

    @property
    def escape_probability(self) -> float:
        """c' = (c-2)/(c-1): the chance that a walk on the infinite tree never comes back."""
        return (self.degree - 2) / (self.degree - 1)

    @property
    def decay_rate(self) -> float:
        """a = c'/N: the rate, per hop, at which long first-hitting times die out."""
        return self.escape_probability / self.n_nodes


@dataclass(frozen=True, slots=True, kw_only=True)
class AnonymityModel:
    """The walk, the distances of destinations, and the half-width of the observer's window: the paper's delta."""

    walk: WalkModel
    support: DistanceSupport
    window_radius: int = 5

    def __post_init__(self) -> None:
        validate.integer(0, window=self.window_radius)
        widest = _WIDEST / self.walk.decay_rate
        if self.window_radius > widest:
            need = f"at most {widest:.0f}: no walk is without its target for so long"
            raise InvalidParameterError("window", self.window_radius, need)


def gompertz_shell_sizes(distance: npt.ArrayLike, *, model: WalkModel) -> FloatArray:
    """A(l) = N (G(l-1) - G(l)) with G(l) = exp(-c/((c-2)N) ((c-1)^l - 1)): the expected shell sizes.

    The paper never says which shell sizes it uses; its published table fixes these (errata, point 0). A shell
    far beyond the diameter is zero to machine precision. Paper: A(l), unlabelled.
    """
    ell = np.asarray(distance)
    if not np.issubdtype(ell.dtype, np.integer) or np.any(ell < 1):
        raise InvalidParameterError("distance", distance, "whole numbers >= 1")
    c, n = model.degree, model.n_nodes
    # Beyond this exponent G underflows anyway; the cap keeps (c-1)^l finite.
    growth = np.minimum(ell * math.log(c - 1), 700.0)
    scale = c / ((c - 2) * n)
    before = scale * np.expm1(np.maximum(growth - math.log(c - 1), 0.0))
    step = scale * np.exp(growth) * (c - 2) / (c - 1)
    # G(l-1) - G(l) = G(l-1) (1 - e^-step): no difference of nearly equal numbers at large N.
    return n * np.exp(-before) * -np.expm1(-step)


def typical_diameter(model: WalkModel) -> int:
    """Largest distance at which a node is expected to have at least one other per graph: N A(l) >= 1."""
    distances = np.arange(1, 4 * math.ceil(math.log(model.n_nodes) / math.log(model.degree - 1)) + 8)
    sizes = gompertz_shell_sizes(distances, model=model)
    return int(distances[model.n_nodes * sizes >= 1.0].max())
