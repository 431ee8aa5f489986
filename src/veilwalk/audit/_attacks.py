"""Every observer's posteriors on one run, scored; destinations are taken in turn, so that one law is in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from veilwalk.audit import _posteriors as posteriors
from veilwalk.audit._estimated import Calibration
from veilwalk.audit._profile import DistanceProfile
from veilwalk.audit._report import Linked, Scored
from veilwalk.audit._run import Run, Say
from veilwalk.audit._scores import SCORES, score
from veilwalk.audit._settings import SAMPLED_DESTINATIONS, AuditSettings
from veilwalk.audit._sightings import Sightings
from veilwalk.chains import DeliveryLaw, WalkChain, iter_approximate_deliveries, iter_deliveries, token_law
from veilwalk.core.arrays import FloatArray, IntArray, normalised
from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.randomness import task_generator
from veilwalk.design import DestinationLaw

#: How many updates known to have one source the repeated observer joins.
LINKED = (1, 2, 4, 8)
_SCORED_BY_COLLUDERS = 20_000
# A stream of its own for the choice of destinations.
_SAMPLE_TASK = 0x64657374

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
        self.learning = bool(settings.timed) and settings.posterior == "by-class"
        # Every other lane is for calibration; with laws of their own posteriors need none, and all are scored.
        even = run.truth.lane % 2 == 0
        self.training = even if self.learning else np.zeros_like(even)
        self.attacked = np.ones(chain.n_nodes, dtype=np.bool_)
        if settings.timed and settings.posterior == "estimated":
            # One law costs seconds on a large graph: a sample of destinations stands for all.
            picked = task_generator(settings.seed, _SAMPLE_TASK).permutation(chain.n_nodes)[:SAMPLED_DESTINATIONS]
            self.attacked = np.isin(np.arange(chain.n_nodes), picked)
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

    def laws(self, nodes: IntArray) -> Iterator[DeliveryLaw | None]:
        """Yield the delivery law of each node, as exact as the settings ask; None where none is needed."""
        if not self.settings.timed or self.settings.posterior == "by-class":
            return iter([None] * len(nodes))
        make = iter_deliveries if self.settings.posterior == "exact" else iter_approximate_deliveries
        return make(self.chain, self.matrix, self.horizon, nodes)

    def base(self, observer: str, node: int, here: Sightings, law: DeliveryLaw | None) -> FloatArray:
        """Return the posterior of a return-time observer from its law; without one, the prior."""
        if law is None:
            return np.tile(self.prior[node], (len(here), 1))
        use = posteriors.from_return_time if observer == "return-time" else posteriors.from_last_hop
        return use(law, here, self.chain.n_nodes)

    def packed(
        self, rows: IntArray, scores: FloatArray, kind: str, prior: FloatArray, *, sampled: bool = False
    ) -> Scored:
        """Return scored updates with what a blind guess from ``prior`` would hit."""
        seen = self.run.seen
        return Scored(
            kind=kind,
            sampled=sampled,
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
    rows = np.flatnonzero(~bench.training & bench.attacked[seen.destination])
    _require_rows(rows, "was left to score")
    exact = bool(settings.timed) and settings.posterior == "exact"
    nodes = np.unique(seen.destination[rows])
    pairs = zip(bench.by_destination(rows), bench.laws(nodes), strict=True)
    for number, ((node, mine), delivery) in enumerate(pairs, start=1):
        here = seen.at(mine)
        for name, guess in guesses.items():
            scores[name][mine] = bench.score(guess(node, here, delivery), mine, node)
        if delivery is not None and exact:
            bench.profile.add(delivery, bench.apart[node])
            if "repeated" in settings.observers:
                _join_linked(bench, delivery, mine, linked)
        say(f"attacking: destination {number} of {len(nodes)}")
    sampled = not bench.attacked.all()
    found = {
        name: bench.packed(rows, values[rows], _kind(bench, name), bench.prior, sampled=sampled)
        for name, values in scores.items()
    }
    if exact and "repeated" in settings.observers:
        joined = {count: _together(tables) for count, tables in linked.items() if tables}
        found["repeated"] = Scored(kind="exact", linked=joined)
    return found


def _guesses(bench: Bench) -> dict[str, Posterior]:
    """The posterior of each single observer asked for, as a function of destination, sightings and exact law."""
    asked = bench.settings.observers
    guesses: dict[str, Posterior] = {}
    if "prior" in asked:
        guesses["prior"] = lambda node, here, _: np.tile(bench.prior[node], (len(here), 1))
    if "window" in asked:
        window = posteriors.WindowPosteriors(
            bench.chain, bench.matrix, bench.run.seen.return_time, window_radius=bench.settings.window_radius
        )
        guesses["window"] = lambda node, here, _: window.at(node, here)
    timed = [name for name in ("return-time", "last-hop") if name in asked]
    corrections = _corrections(bench, timed) if bench.learning and timed else {}
    for name in timed:
        guesses[name] = _timed_guess(bench, name, corrections.get(name))
    return guesses


def _timed_guess(bench: Bench, name: str, correction: Calibration | None) -> Posterior:
    def guess(node: int, here: Sightings, law: DeliveryLaw | None) -> FloatArray:
        base = bench.base(name, node, here, law)
        return base if correction is None else correction.apply(node, here, base)

    return guess


def _corrections(bench: Bench, names: Sequence[str]) -> dict[str, Calibration]:
    """Learn on the training lanes how far the base posteriors of ``names`` are off."""
    seen, truth = bench.run.seen, bench.run.truth
    rows = np.flatnonzero(bench.training & bench.attacked[seen.destination])
    _require_rows(rows, "was left to calibrate on")
    learnt = {name: Calibration(bench.apart, seen.return_time[rows], use_last_hop=name == "last-hop") for name in names}
    nodes = np.unique(seen.destination[rows])
    for (node, mine), law in zip(bench.by_destination(rows), bench.laws(nodes), strict=True):
        here = seen.at(mine)
        for name, correction in learnt.items():
            correction.learn(node, here, truth.source[mine], bench.base(name, node, here, law))
    return learnt


def _require_rows(rows: IntArray, what: str) -> None:
    if not len(rows):
        raise InvalidParameterError("updates", len(rows), f"more than were asked for: none {what}")


def _kind(bench: Bench, name: str) -> str:
    if name == "window":
        return "the paper's notion; exact likelihoods at the medians of up to 40 return-time bins"
    if name in bench.settings.timed and bench.learning:
        return "by-class: calibrated on half of the lanes, scored on the others"
    if name in bench.settings.timed and bench.settings.posterior == "estimated":
        return (
            f"estimated: laws exact but for one correlation of order 1/n, at up to {SAMPLED_DESTINATIONS} destinations"
        )
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
