"""First-spy: every message is laid at the door of whoever first handed it to a spy; precision and recall of that.

The two numbers of the Dandelion papers. Every honest node sends one message, a batch. Recall is the share of messages
that are laid at the right door; precision the mean over honest nodes of that, divided by how many messages are laid at
the same door. No routing alone brings an adversary with a share p of the nodes below recall p and precision p^2.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from veilwalk.core.arrays import BoolArray, FloatArray, IntArray
from veilwalk.core.errors import InvalidParameterError


@dataclass(frozen=True, kw_only=True)
class SpyScores:
    """What spies make of batches of messages, one of every honest node.

    Attributes:
        share: p, the share of the nodes that spy.
        recall: Share of the messages that are laid at the right door.
        precision: The same, each divided by how many messages of its batch are laid at that door.
    """

    share: float
    recall: float
    precision: float

    @property
    def recall_floor(self) -> float:
        """What no routing alone goes below: p."""
        return self.share

    @property
    def precision_floor(self) -> float:
        """What no routing alone goes below: p squared."""
        return self.share**2


def batches_of(source: IntArray, blamed: IntArray, spies: BoolArray) -> IntArray:
    """Return who is blamed for each honest node's message, a row a batch, in the order of the honest nodes.

    ``source`` made each message and ``blamed`` handed it to the first spy, -1 where none saw it. The b-th message of
    every honest node is one batch; what the busier ones sent beyond the last whole batch is left out.
    """
    honest = np.flatnonzero(~spies)
    counts = np.bincount(source, minlength=len(spies))[honest]
    size = int(counts.min()) if len(honest) else 0
    if not size:
        raise InvalidParameterError("updates", len(source), "enough for every honest node to send one")
    order = np.argsort(source, kind="stable")
    starts = np.searchsorted(source[order], honest)
    return np.asarray(blamed[order[starts + np.arange(size)[:, np.newaxis]]])


def score_batches(blamed: IntArray, spies: BoolArray) -> SpyScores:
    """Score batches as :func:`batches_of` gives them."""
    honest = np.flatnonzero(~spies)
    n_batches, n_nodes = len(blamed), len(spies)
    seen = blamed >= 0
    flat = (np.arange(n_batches)[:, np.newaxis] * n_nodes + np.where(seen, blamed, 0))[seen]
    doors = np.bincount(flat, minlength=n_batches * n_nodes).reshape(n_batches, n_nodes)
    right = blamed == honest
    shared = right / np.maximum(doors[:, honest], 1)
    return SpyScores(share=float(spies.mean()), recall=float(right.mean()), precision=float(shared.mean()))


def expected_scores(blame: FloatArray, spies: BoolArray) -> SpyScores:
    """Return the expected scores, exact, of messages that go their ways independently of each other.

    Args:
        blame: chance that the message of an honest node (row) is laid at the door of another (column), in their order.
        spies: who spies.
    """
    size, own = len(blame), np.diagonal(blame)
    # E[1 / (1 + S)] of a sum S of independent trials is the integral of E[t^S] from 0 to 1: a polynomial in t of
    # degree size - 1, which Gauss and Legendre integrate exactly.
    points, weights = np.polynomial.legendre.leggauss(size // 2 + 1)
    total = np.zeros(size)
    for t, weight in zip((points + 1) / 2, weights / 2, strict=True):
        factors = 1 - blame * (1 - t)
        np.fill_diagonal(factors, 1.0)
        total += weight * factors.prod(axis=0)
    return SpyScores(share=float(spies.mean()), recall=float(own.mean()), precision=float((own * total).mean()))
