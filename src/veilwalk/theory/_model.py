"""The one value every closed form takes: a simple walk on a random regular graph."""

from __future__ import annotations

from dataclasses import dataclass

from veilwalk.core import validate
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
    """The walk, the distances destinations are drawn from, and the half-width of the observer's window.

    ``window_radius`` is the paper's delta in Definition PrivacyNotion.
    """

    walk: WalkModel
    support: DistanceSupport
    window_radius: int = 5

    def __post_init__(self) -> None:
        validate.integer(window=self.window_radius)
        validate.at_least(0, window=self.window_radius)
        widest = _WIDEST / self.walk.decay_rate
        if self.window_radius > widest:
            need = f"at most {widest:.0f}: no walk is without its target for so long"
            raise InvalidParameterError("window", self.window_radius, need)
