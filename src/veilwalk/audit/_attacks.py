"""Every observer's posteriors on one run, scored; destinations are taken in turn, so that one law is in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from veilwalk.audit import _posteriors as posteriors
from veilwalk.audit._bench import Bench
from veilwalk.audit._estimated import Calibration
from veilwalk.audit._path import first_updates, from_path, from_round
from veilwalk.audit._report import Linked, Scored
from veilwalk.audit._run import Say
from veilwalk.audit._scores import SCORES
from veilwalk.audit._settings import SAMPLED_DESTINATIONS, SCORED_BY_FEW
from veilwalk.audit._sightings import Sightings
from veilwalk.chains import DeliveryLaw
from veilwalk.core.arrays import FloatArray, IntArray, normalised

#: How many updates known to have one source the repeated observer joins.
LINKED = (1, 2, 4, 8)
# Each is foretold by simulation.
_SCORED_BY_ROUND = 2_048

Posterior = Callable[[int, Sightings, DeliveryLaw | None], FloatArray]


def attack(bench: Bench, say: Say) -> dict[str, Scored]:
    """Return the scored updates of every observer asked for, in the order asked."""
    bench.rehearse(say)
    found = _destinations_alone(bench, say)
    for name in bench.settings.colluding:
        say(f"attacking: {name} with {bench.settings.colluders} colluders")
        found[name] = _coalition(bench, name)
    for name in bench.settings.worst_cases:
        say(f"attacking: {name}")
        found[name] = _worst_case(bench, name)
    return {name: found[name] for name in bench.settings.observers}


def _destinations_alone(bench: Bench, say: Say) -> dict[str, Scored]:
    """Score every update under each observer that is its destination alone."""
    seen, settings = bench.run.seen, bench.settings
    guesses = _guesses(bench)
    scores = {name: np.zeros((len(seen), len(SCORES))) for name in guesses}
    linked: dict[int, list[Linked]] = {count: [] for count in LINKED}
    rows = bench.require(np.flatnonzero(~bench.training & bench.attacked[seen.destination]), "was left to score")
    nodes = np.unique(seen.destination[rows])
    pairs = zip(bench.by_destination(rows), bench.laws(nodes), strict=True)
    for number, ((node, mine), delivery) in enumerate(pairs, start=1):
        here = seen.at(mine)
        for name, guess in guesses.items():
            scores[name][mine] = bench.score(guess(node, here, delivery), mine, node)
        if delivery is not None and bench.exact:
            bench.profile.add(delivery, bench.apart[node])
        if "repeated" in settings.observers:
            _join_linked(bench, node, delivery, mine, linked)
        say(f"attacking: destination {number} of {len(nodes)}")
    sampled = not bench.attacked.all()
    found = {
        name: bench.packed(rows, values[rows], _kind(bench, name), bench.prior, sampled=sampled)
        for name, values in scores.items()
    }
    if "repeated" in settings.observers:
        joined = {count: _together(tables) for count, tables in linked.items() if tables}
        found["repeated"] = Scored(kind=_kind(bench, "repeated"), linked=joined)
    return found


def _guesses(bench: Bench) -> dict[str, Posterior]:
    """The posterior of each single observer asked for, as a function of destination, sightings and exact law."""
    asked = bench.settings.observers
    guesses: dict[str, Posterior] = {}
    if "prior" in asked:
        guesses["prior"] = lambda node, here, _: np.tile(bench.prior[node], (len(here), 1))
    if "window" in asked:
        window = posteriors.WindowPosteriors(
            bench.node_chain, bench.matrix, bench.run.seen.return_time, window_radius=bench.settings.window_radius
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
    bench.require(rows, "was left to calibrate on")
    learnt = {name: Calibration(bench.apart, seen.return_time[rows], use_last_hop=name == "last-hop") for name in names}
    nodes = np.unique(seen.destination[rows])
    for (node, mine), law in zip(bench.by_destination(rows), bench.laws(nodes), strict=True):
        here = seen.at(mine)
        for name, correction in learnt.items():
            correction.learn(node, here, truth.source[mine], bench.base(name, node, here, law))
    return learnt


def _kind(bench: Bench, name: str) -> str:
    if name == "window":
        return "the paper's notion; exact likelihoods at the medians of up to 40 return-time bins"
    if name in bench.settings.timed and bench.learning:
        return "by-class: calibrated on half of the lanes, scored on the others"
    if name in bench.settings.timed and bench.settings.posterior == "estimated":
        return (
            f"estimated: laws exact but for one correlation of order 1/n, at up to {SAMPLED_DESTINATIONS} destinations"
        )
    if name in bench.settings.timed and bench.deliveries is not None and not bench.exact:
        return "rehearsed: likelihoods by class from walks of its own"
    return "exact"


def _together(tables: list[Linked]) -> Linked:
    return np.concatenate([scores for scores, _ in tables]), np.concatenate([lanes for _, lanes in tables])


def _join_linked(
    bench: Bench, node: int, delivery: DeliveryLaw | None, rows: IntArray, out: dict[int, list[Linked]]
) -> None:
    """Join updates of one source at this destination: the prior times the product of likelihoods.

    That they belong together is granted to the observer, as a fingerprint in the content would grant it; whose they
    are is not.
    """
    here = bench.run.seen.at(rows)
    sources = np.flatnonzero(bench.prior[node] > 0) if delivery is None else delivery.sources
    prior = bench.prior[node, sources]
    joint = (
        bench.base("last-hop", node, here, None)[:, sources]
        if delivery is None
        else posteriors.last_hop_joint(delivery, here.return_time, here.last_hop)
    )
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
            guess = np.zeros((len(kept), bench.graph.n_nodes))
            guess[:, sources] = normalised(weight)
            first = rows[kept[:, 0]]
            out[count].append((bench.score(guess, first, node), bench.run.truth.lane[first]))


def _coalition(bench: Bench, name: str) -> Scored:
    """Score updates that went to a colluder and came from somebody else."""
    seen, truth = bench.run.seen, bench.run.truth
    member = np.zeros(bench.graph.n_nodes, dtype=np.bool_)
    member[bench.run.colluders] = True
    rows = np.flatnonzero(member[seen.destination] & ~member[truth.source])
    rows = rows[:: -(-len(rows) // SCORED_BY_FEW) or 1]
    bench.require(rows, "went to a colluder from somebody else")
    adversary, kind = bench.coalition
    scores = np.zeros((len(seen), len(SCORES)))
    for node, mine in bench.by_destination(rows):
        scores[mine] = bench.score(adversary.posterior(name, seen.at(mine)), mine, node)
    return bench.packed(rows, scores[rows], kind, normalised(np.where(member, 0.0, bench.prior)))


def _worst_case(bench: Bench, name: str) -> Scored:
    """Score the first updates of every lane under an observer that knows where the token went."""
    seen, lanes = bench.run.seen, bench.run.truth.lane
    count = SCORED_BY_FEW if name == "path" else _SCORED_BY_ROUND
    rows = first_updates(lanes, np.flatnonzero(bench.attacked[seen.destination]), count)
    bench.require(rows, "was left to score")
    here, mine = seen.at(rows), lanes[rows]
    if name == "path":
        guess = from_path(bench.graph, bench.law, bench.settings, seen=here, lanes=mine)
        kind = "exact: every hop is known"
    else:
        guess = from_round(
            bench.graph, bench.law, bench.settings, seen=here, lanes=mine, otherwise=_without_memory(bench, rows)
        )
        kind = "simulated onward from what every node remembered"
    scores = np.zeros((len(seen), len(SCORES)))
    for node, mine in bench.by_destination(rows):
        scores[mine] = bench.score(guess[np.searchsorted(rows, mine)], mine, node)
    return bench.packed(rows, scores[rows], kind, bench.prior)


def _without_memory(bench: Bench, rows: IntArray) -> FloatArray:
    """Posteriors from return time and last hop, rehearsed."""
    guess = np.zeros((len(rows), bench.graph.n_nodes))
    if bench.deliveries is not None:
        for node, mine in bench.by_destination(rows):
            here = bench.run.seen.at(mine)
            guess[np.searchsorted(rows, mine)] = bench.deliveries.posterior(node, here, use_last_hop=True)
    return guess
