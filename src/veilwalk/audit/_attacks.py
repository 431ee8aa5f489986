"""Every observer's posteriors on one run, scored; destinations are taken in turn, so that one law is in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from veilwalk.audit import _posteriors as posteriors
from veilwalk.audit._estimated import EstimatedPosteriors
from veilwalk.audit._profile import DistanceProfile
from veilwalk.audit._report import Linked, Scored
from veilwalk.audit._run import Run, Say
from veilwalk.audit._scores import SCORES, score
from veilwalk.audit._settings import AuditSettings
from veilwalk.audit._sightings import Sightings
from veilwalk.chains import DeliveryLaw, WalkChain, iter_deliveries, token_law
from veilwalk.core.arrays import FloatArray, IntArray, normalised
from veilwalk.core.errors import InvalidParameterError, NumericalError
from veilwalk.design import DestinationLaw

#: How many updates known to have one source the repeated observer joins.
LINKED = (1, 2, 4, 8)
_SCORED_BY_COLLUDERS = 20_000

Posterior = Callable[[int, Sightings, DeliveryLaw | None], FloatArray]


class Bench:
    """One run and all that is public about it: what every attack starts from."""

    def __init__(
        self,
        chain: WalkChain,
        law: DestinationLaw,
        settings: AuditSettings,
        run: Run,
        *,
        apart: IntArray,
        hitting: FloatArray,
        horizon: int,
    ) -> None:
        self.chain, self.settings, self.run, self.apart = chain, settings, run, apart
        self.hitting, self.horizon, self.support = hitting, horizon, law.support
        self.matrix = law.matrix.toarray()
        self.prior = posteriors.source_priors(self.matrix)
        self.estimating = bool(settings.timed) and settings.posterior == "estimated"
        # Every other lane is for calibration; with exact posteriors all are scored.
        even = run.truth.lane % 2 == 0
        self.training = even if self.estimating else np.zeros_like(even)
        self.profile = DistanceProfile(law.support, horizon)

    def score(self, guess: FloatArray, rows: IntArray, destination: int) -> FloatArray:
        """Score posteriors of the given updates, all at one destination."""
        return score(guess, self.run.truth.source[rows], self.apart[destination], self.support)

    def by_destination(self, rows: IntArray) -> Iterator[tuple[int, IntArray]]:
        """Yield each destination with its updates among ``rows``, ascending."""
        order = rows[np.argsort(self.run.seen.destination[rows], kind="stable")]
        nodes, starts = np.unique(self.run.seen.destination[order], return_index=True)
        for node, mine in zip(nodes, np.split(order, starts[1:]), strict=True):
            yield int(node), mine

    def packed(self, rows: IntArray, scores: FloatArray, kind: str, prior: FloatArray) -> Scored:
        """Return scored updates with what a blind guess from ``prior`` would hit."""
        seen = self.run.seen
        return Scored(
            kind=kind,
            scores=scores,
            blind=prior.max(axis=1)[seen.destination[rows]],
            lanes=self.run.truth.lane[rows],
            return_time=seen.return_time[rows],
            destination=seen.destination[rows],
        )


def attack(bench: Bench, say: Say) -> dict[str, Scored]:
    """Return the scored updates of every observer asked for, in the order asked."""
    found = _destinations_alone(bench, say)
    for name in bench.settings.colluding:
        say(f"attacking: {name} with {bench.settings.colluders} colluders")
        found[name] = _coalition(bench, name)
    return {name: found[name] for name in bench.settings.observers}


def _destinations_alone(bench: Bench, say: Say) -> dict[str, Scored]:
    """Score every update under each observer that is its destination alone."""
    seen, settings = bench.run.seen, bench.settings
    guesses = _guesses(bench)
    scores = {name: np.zeros((len(seen), len(SCORES))) for name in guesses}
    linked: dict[int, list[Linked]] = {count: [] for count in LINKED}
    rows = np.flatnonzero(~bench.training)
    _require_rows(rows, "was left to score")
    exact = bool(settings.timed) and not bench.estimating
    nodes = np.unique(seen.destination[rows])
    laws: Iterator[DeliveryLaw | None] = iter([None] * len(nodes))
    if exact:
        laws = iter_deliveries(bench.chain, bench.matrix, bench.horizon, nodes)
    for number, ((node, mine), delivery) in enumerate(zip(bench.by_destination(rows), laws, strict=True), start=1):
        here = seen.at(mine)
        for name, guess in guesses.items():
            scores[name][mine] = bench.score(guess(node, here, delivery), mine, node)
        if delivery is not None:
            bench.profile.add(delivery, bench.apart[node])
            if "repeated" in settings.observers:
                _join_linked(bench, delivery, mine, linked)
        say(f"attacking: destination {number} of {len(nodes)}")
    found = {name: bench.packed(rows, values[rows], _kind(bench, name), bench.prior) for name, values in scores.items()}
    if exact and "repeated" in settings.observers:
        joined = {count: _together(tables) for count, tables in linked.items() if tables}
        found["repeated"] = Scored(kind="exact", linked=joined)
    return found


def _guesses(bench: Bench) -> dict[str, Posterior]:
    """The posterior of each single observer asked for, as a function of destination, sightings and exact law."""
    n_nodes = bench.chain.n_nodes
    asked = bench.settings.observers
    guesses: dict[str, Posterior] = {}
    if "prior" in asked:
        guesses["prior"] = lambda node, here, _: np.tile(bench.prior[node], (len(here), 1))
    if "window" in asked:
        window = posteriors.WindowPosteriors(
            bench.chain, bench.matrix, bench.run.seen.return_time, window_radius=bench.settings.window_radius
        )
        guesses["window"] = lambda node, here, _: window.at(node, here)
    if bench.estimating:
        learnt = EstimatedPosteriors(bench.prior, bench.apart, bench.run.seen, bench.run.truth, bench.training)
        if "return-time" in asked:
            guesses["return-time"] = lambda node, here, _: learnt.at(node, here, with_last_hop=False)
        if "last-hop" in asked:
            guesses["last-hop"] = lambda node, here, _: learnt.at(node, here, with_last_hop=True)
        return guesses
    if "return-time" in asked:
        guesses["return-time"] = lambda _, here, law: posteriors.from_return_time(_given(law), here, n_nodes)
    if "last-hop" in asked:
        guesses["last-hop"] = lambda _, here, law: posteriors.from_last_hop(_given(law), here, n_nodes)
    return guesses


def _require_rows(rows: IntArray, what: str) -> None:
    if not len(rows):
        raise InvalidParameterError("updates", len(rows), f"more than were asked for: none {what}")


def _given(law: DeliveryLaw | None) -> DeliveryLaw:
    if law is None:
        raise NumericalError("an exact observer was not given its law")
    return law


def _kind(bench: Bench, name: str) -> str:
    if name == "window":
        return "the paper's notion; exact likelihoods at the medians of up to 40 return-time bins"
    if name in bench.settings.timed and bench.estimating:
        return "estimated: calibrated on half of the lanes, scored on the others"
    return "exact"


def _together(tables: list[Linked]) -> Linked:
    return np.concatenate([scores for scores, _ in tables]), np.concatenate([lanes for _, lanes in tables])


def _join_linked(bench: Bench, delivery: DeliveryLaw, rows: IntArray, out: dict[int, list[Linked]]) -> None:
    """Join updates of one source at this destination: the prior times the product of likelihoods.

    That they belong together is granted to the observer, as a fingerprint in the content would grant it; whose they
    are is not.
    """
    prior = bench.prior[delivery.destination, delivery.sources]
    joint = posteriors.last_hop_joint(delivery, bench.run.seen.at(rows))
    with np.errstate(divide="ignore"):
        evidence = np.log(joint / prior)
    source = bench.run.truth.source[rows]
    order = np.argsort(source, kind="stable")
    _, begins, sizes = np.unique(source[order], return_index=True, return_counts=True)
    place = np.arange(len(order)) - np.repeat(begins, sizes)
    for count in LINKED:
        # Whole groups of this many updates; what is left over of a source is dropped.
        kept = order[place < np.repeat(sizes // count * count, sizes)].reshape(-1, count)
        if len(kept):
            total = np.log(prior) + evidence[kept].sum(axis=1)
            weight = np.exp(total - total.max(axis=1, keepdims=True))
            guess = posteriors.over_all_nodes(delivery, weight, bench.chain.n_nodes)
            first = rows[kept[:, 0]]
            out[count].append((bench.score(guess, first, delivery.destination), bench.run.truth.lane[first]))


def _coalition(bench: Bench, name: str) -> Scored:
    """Score updates that went to a colluder and came from somebody else."""
    seen, truth = bench.run.seen, bench.run.truth
    member = np.zeros(bench.chain.n_nodes, dtype=np.bool_)
    member[bench.run.colluders] = True
    rows = np.flatnonzero(member[seen.destination] & ~member[truth.source])
    rows = rows[:: -(-len(rows) // _SCORED_BY_COLLUDERS) or 1]
    _require_rows(rows, "went to a colluder from somebody else")
    visits = token_law(bench.chain, bench.matrix, bench.hitting)
    adversary = posteriors.ColluderPosteriors(bench.chain, bench.matrix, bench.run.colluders, visits)
    scores = np.zeros((len(seen), len(SCORES)))
    for node, mine in bench.by_destination(rows):
        scores[mine] = bench.score(adversary.posterior(name, seen.at(mine)), mine, node)
    return bench.packed(rows, scores[rows], "exact", normalised(np.where(member, 0.0, bench.prior)))
