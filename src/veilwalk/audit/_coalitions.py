"""Measures what coalitions gain that share keys, cheat or surround a peer, and what they name on a secret overlay.

Reading is counted on the run that the audit played. Members that cheat change the run, so they play one of their own,
on paths of the same walk: where a token goes does not depend on for whom it is sealed.

On a secret overlay with nameless keys an observer knows names only next to itself (``named_nodes``); to it all others
are exchangeable, so that any posterior over places becomes one over names by averaging (``average_unnamed``).
Coalitions there share keys, seize what any of their keys opens and choose the next recipients themselves. Forms of
overlays that lack a part are measured too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse, special
from scipy.sparse import csgraph

from veilwalk.audit._kernels_coalitions import (
    ANYBODY,
    DRAWN_SET,
    GUESS,
    HONESTLY,
    MAKER,
    N_COLUMNS,
    ONE_VICTIM,
    OWN_SET,
    SEALER,
    STEPS,
    play_cheating_lane,
    play_seizing_lane,
    weigh_with_map,
    weigh_without_map,
)
from veilwalk.audit._knowledge import Knowledge, group_equal
from veilwalk.audit._members import select_read
from veilwalk.audit._play import draw_pools
from veilwalk.audit._score import estimate_over_lanes
from veilwalk.core.arrays import BoolArray, FloatArray, IntArray, normalised
from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.randomness import task_generator
from veilwalk.core.stats import estimate_mean
from veilwalk.design import Scheme, approximate_read_share
from veilwalk.graphs import Graph
from veilwalk.walks import token_paths

# Streams of their own: of cheaters, and on overlays.
_CHEAT_TASK, _TASK = 0x63686561, 0x6F76_6572
# Lanes that cheaters play, about how many updates, and at most so many hops; sets of all sources.
_CHEAT_LANES, _CHEAT_UPDATES, _MOST_HOPS, _ALL_SETS = 32, 30_000, 20_000_000, 40_000
_LANES = 16
_SETS = 64
# Sets of the coalition to choose from, and the longest stretch that is weighed; longer ones say hardly anything.
_AIMS, _LONGEST = 2_048, 300
# So many times the updates that are linked are played for each member.
_SPARE = 1.8
# The weight of the prior in a posterior that is multiplied: a model of overlays is an approximation.
_DOUBT = 1e-3
# Seeds of replicas lie so far apart; posteriors that differ by less are equal.
_REPLICA, _TIE = 1_000, 1e-9
# More groups than any maker has.
_MOST_GROUPS = 1 << 32
# Linked updates and replicas of an audit's rows; the share that is online, and the updates of the row on presence.
_ROW_LINKED, _ROW_REPLICAS = (1, 8), 4
_ONLINE, _ABSENCES = 0.9, 32
#: What a coalition seals for: sets as the rule draws them, one key and dummies, or keys of its neighbours alone.
AIMS = ("draws", "dummies", "neighbours")
LINKED = (1, 2, 4, 8, 16, 32)

Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class OverlayAttack:
    """A coalition: what it knows, and what it does. The defaults are the strongest that the scheme allows.

    Attributes:
        has_map: Whether it knows the whole map; else its own links. On a secret overlay a map has no names.
        has_names: Whether each place of the map has a name: the graph is published.
        has_key_places: Whether it knows at which place of the map each key is, or whose it is; else only the keys of
            its neighbours.
        seizes: Whether it opens what any key of a member opens, and seals again.
        uses_draws: Whether it remembers its own sets.
        aim: Whom it seals for, one of ``AIMS``.
        overlays: Number of overlays over which linked updates are spread.
        online: Share of members that are online at a time, which everybody sees; 1 where nobody sees it.
        hop_noise: Deviation of a maker's time, over that of the known means of members; 0 where times are even.
    """

    name: str = "cartographer"
    has_map: bool = True
    has_names: bool = False
    has_key_places: bool = True
    seizes: bool = True
    uses_draws: bool = True
    aim: str = "draws"
    overlays: int = 1
    online: float = 1.0
    hop_noise: float = 0.0


@dataclass(frozen=True, eq=False)
class OverlayPlay:
    """Updates that a coalition read in one overlay, and what its model of them needs."""

    rows: IntArray
    pools: IntArray
    aims: IntArray
    honest_updates: int
    graph: Graph
    member: BoolArray
    trains: float = 1.0

    @property
    def exposed(self) -> BoolArray:
        """Honest nodes with a neighbour in the coalition."""
        return np.asarray(~self.member & (self.graph.adjacency @ self.member.astype(np.float64) > 0))


def named_nodes(graph: Graph, watching: BoolArray) -> BoolArray:
    """Return whose names watchers know: their own and their neighbours'. ``watching`` has a row for each observer."""
    reached = sparse.csr_array(watching.astype(np.float64)) @ graph.adjacency
    return np.asarray(watching | (reached.toarray() > 0))


def average_unnamed(weights: FloatArray, named: BoolArray) -> FloatArray:
    """Return posteriors over names: the weight of all places without a name is spread evenly over the other members."""
    unnamed = ~named
    shared = (weights * unnamed).sum(axis=-1, keepdims=True) / np.maximum(unnamed.sum(axis=-1, keepdims=True), 1)
    return np.asarray(np.where(named, weights, shared))


def naming_bound(exposed: float, honest: int) -> float:
    """Return the most that any observer names of makers that are chosen evenly: theorem of secret-overlay.md."""
    return exposed + (1.0 if exposed < 1.0 else 0.0) / honest


def play_seizing(scheme: Scheme, member: BoolArray, *, updates: int, seed: int, attack: OverlayAttack) -> OverlayPlay:
    """Play about so many honest updates on the scheme's graph against a coalition."""
    graph, rng = scheme.graph, task_generator(seed, _TASK)
    honest, pools = np.flatnonzero(~member), draw_pools(scheme, _SETS, rng)
    exposed = np.flatnonzero(~member & (graph.adjacency @ member.astype(np.float64) > 0))
    candidates, size = (exposed, 1) if attack.aim == "neighbours" else (honest, scheme.recipients)
    size = 1 if attack.aim == "dummies" else size
    aims = np.full((_AIMS, scheme.recipients), -1)
    for row in aims:
        row[:size] = rng.choice(candidates, size=size, replace=False)
    if not attack.seizes and attack.aim == "draws":
        aims = pools[rng.choice(np.flatnonzero(member), size=_AIMS), rng.integers(_SETS, size=_AIMS)]
    longest = graph.n_nodes if size == 1 else scheme.price.hops
    hops = int(updates * (scheme.price.hops + longest) / 2 / _LANES) + graph.n_nodes
    paths = token_paths(graph, hops=hops, lanes=_LANES, seed=int(rng.integers(1 << 62)), walk=scheme.walk)
    tables, total = [], 0
    for path in paths:
        out = np.zeros((updates, N_COLUMNS), dtype=np.int64)
        count, n_updates = play_seizing_lane(
            path, pools, aims, member, attack.seizes, scheme.train_probability, rng.random(99_991), out
        )
        tables.append(out[:count])
        total += n_updates
    rows = np.concatenate(tables)
    return OverlayPlay(rows, pools, aims, total, graph, member, scheme.train_probability)


def weigh_makers(play: OverlayPlay, attack: OverlayAttack) -> FloatArray:
    """Return the coalition's posterior over places of the map for each update that it read."""
    graph, member, rows = play.graph, play.member, play.rows.copy()
    n_honest, slots = int((~member).sum()), play.aims.shape[1]
    p = float(member.mean())
    some = -math.expm1(slots * math.log1p(-p))
    # Chances that a node is a recipient of an honest set: without a member, any, with a member.
    hazards = np.array([slots, slots * (1.0 - p), slots * (1.0 - p / some)]) / n_honest
    own = np.array([np.bincount(aim[aim >= 0], minlength=graph.n_nodes) for aim in play.aims], dtype=np.float64)
    if not attack.uses_draws:
        rows[:, OWN_SET] = -1
        hazards[0] = hazards[1]
    if not attack.has_key_places:
        unknown = ~member & ~play.exposed
        own = average_unnamed(own, ~unknown)
    if not attack.seizes:
        # Who reads by the rule holds messages that members could read.
        hazards[:] = hazards[1]
    rows[:, STEPS] = np.minimum(rows[:, STEPS], _LONGEST)
    out = np.zeros((len(rows), graph.n_nodes))
    sealers = weigh_own_keys(play) if attack.seizes else np.ones_like(out)
    if attack.has_map:
        tails = np.repeat(np.arange(graph.n_nodes), graph.degrees)
        keys = tails * graph.n_nodes + graph.indices
        back = np.searchsorted(keys, graph.indices.astype(np.int64) * graph.n_nodes + tails)
        links = graph.indptr, graph.indices, back
        weigh_with_map(rows, own, hazards, play.trains, sealers, links, ~member, out)
    elif play.trains < 1.0:
        raise InvalidParameterError("has_map", attack.has_map, "true where legs are blank")
    else:
        free = np.where(member, 0.0, graph.degrees - graph.adjacency @ member.astype(np.float64))
        weigh_without_map(rows, own, hazards, free, out)
        out = normalised(out * sealers)
    prior = normalised(np.where(member, 0.0, out.sum(axis=0) + 1.0))
    return np.asarray(normalised((1.0 - _DOUBT) * out + _DOUBT * prior))


def weigh_own_keys(play: OverlayPlay) -> FloatArray:
    """Return how likely each node, sealing last, draws just these of the members' keys, with which they try a message.

    A node seals for none of its neighbours. With n colluding neighbours it has n more honest keys to choose from.
    """
    graph, member = play.graph, play.member
    drawn = play.pools[play.rows[:, SEALER], play.rows[:, DRAWN_SET]]
    rows, slots = np.nonzero(member[drawn])
    shape = (len(drawn), graph.n_nodes)
    opening: Any = sparse.csr_array((np.ones(len(rows)), (rows, drawn[rows, slots])), shape=shape)
    near = graph.adjacency @ member.astype(np.float64)
    choices = int((~member).sum()) - 1 - graph.degrees + near
    left = drawn.shape[1] - np.bincount(rows, minlength=len(drawn))[:, np.newaxis]
    # The logarithm of how many sets of that many honest keys there are, but for what is the same for all.
    likely = special.gammaln(choices + 1.0) - special.gammaln(np.maximum(choices - left, 0.0) + 1.0)
    likely = np.exp(likely - likely.max(axis=1, keepdims=True))
    return np.where((opening @ graph.adjacency).toarray() > 0, 0.0, likely)


def measure_overlay(
    scheme: Scheme,
    attack: OverlayAttack,
    *,
    colluders: int,
    linked: Sequence[int] = LINKED,
    updates: int | None = None,
    replicas: int = 8,
    seed: int = 0,
) -> list[Row]:
    """Return how often a coalition names the maker of linked updates that it read: a row for each number of them.

    Every replica has colluders of its own and, where the graph is an overlay, a map of its own; intervals come from
    their spread. ``share`` counts groups of updates; ``by_maker`` gives each honest member one vote, and one of whom it
    never reads so many is not named. ``bound`` is the theorem's for ``by_maker``. By default so many ``updates`` are
    played that it reads enough of nearly everybody.
    """
    n_nodes = scheme.graph.n_nodes
    if updates is None:
        read = colluders / n_nodes
        if attack.seizes:
            read = approximate_read_share(scheme.recipients, read, n_nodes)
        updates = math.ceil(_SPARE * max(linked) * (n_nodes - colluders) / read)
    samples = [
        _score_replica(
            scheme, attack, colluders=colluders, linked=tuple(linked), updates=updates, seed=seed + _REPLICA * replica
        )
        for replica in range(replicas)
    ]
    rows: list[Row] = []
    for number in linked:
        table = [sample[number] for sample in samples if number in sample]
        if not table:
            continue
        row: Row = {"name": attack.name, "linked": number, "groups": int(sum(scores["groups"] for scores in table))}
        for column in ("share", "by_maker", "top_posterior", "read", "bound"):
            mean = estimate_mean(np.array([scores[column] for scores in table]), student=True)
            row |= {column: mean.mean, f"{column}_interval": [mean.low, mean.high]}
        rows.append(row)
    return rows


def _score_replica(
    scheme: Scheme, attack: OverlayAttack, *, colluders: int, linked: tuple[int, ...], updates: int, seed: int
) -> dict[int, dict[str, float]]:
    """Play and attack one choice of colluders; return the scores for each number of linked updates."""
    n_nodes, rng = scheme.graph.n_nodes, task_generator(seed, _TASK, 1)
    member = np.isin(np.arange(n_nodes), rng.choice(n_nodes, size=colluders, replace=False))
    plays, weights, ever_exposed = [], [], np.zeros(n_nodes, dtype=np.bool_)
    for number in range(attack.overlays):
        dealt = scheme
        if scheme.graph.is_overlay:
            dealt = scheme.deal_again(seed=seed + number)
        part = max(updates // attack.overlays, 1)
        plays.append(play_seizing(dealt, member, updates=part, seed=seed + number, attack=attack))
        weights.append(weigh_makers(plays[-1], attack))
        ever_exposed |= plays[-1].exposed
    read = sum(len(play.rows) for play in plays) / max(sum(play.honest_updates for play in plays), 1)
    honest, scores = n_nodes - colluders, {}
    bound = 1.0 if attack.has_names else naming_bound(float(ever_exposed.sum()) / honest, honest)
    for number in linked:
        if number % attack.overlays:
            continue
        names, makers = _join_updates(plays, weights, attack, number // attack.overlays)
        if not len(makers):
            continue
        names = _add_side_knowledge(names, makers, attack, linked=number, rng=rng)
        top = names.max(axis=1, keepdims=True)
        # Rounding must not part those that are equal.
        is_top = names >= top * (1.0 - _TIE)
        hits = is_top[np.arange(len(makers)), makers] / is_top.sum(axis=1)
        groups = np.bincount(makers, minlength=n_nodes)
        by_maker = float((np.bincount(makers, hits, n_nodes)[groups > 0] / groups[groups > 0]).sum()) / honest
        scores[number] = {"groups": len(makers), "share": float(hits.mean()), "by_maker": by_maker}
        scores[number] |= {"top_posterior": float(top.mean()), "read": read, "bound": bound}
    return scores


def _join_updates(
    plays: Sequence[OverlayPlay], weights: Sequence[FloatArray], attack: OverlayAttack, each: int
) -> tuple[FloatArray, IntArray]:
    """Return posteriors over names for groups of updates by one maker, ``each`` from every overlay, and the makers."""
    logs: list[FloatArray] = []
    labels: list[IntArray] = []
    for play, table in zip(plays, weights, strict=True):
        makers = play.rows[:, MAKER]
        groups = group_equal(makers, each)
        with np.errstate(divide="ignore", invalid="ignore"):
            prior = np.log(table.mean(axis=0))
            evidence = np.where(play.member, 0.0, np.log(table) - prior)
            sums = [prior + evidence[group].sum(axis=0) for group in groups]
        joined = _exponentiate(np.reshape(sums, (-1, table.shape[1])))
        if not attack.has_names:
            joined = average_unnamed(joined, play.member | play.exposed)
        # The k-th group of a maker here belongs to its k-th group on another overlay.
        owner = makers[groups[:, 0]]
        order = np.argsort(owner, kind="stable")
        starts = np.searchsorted(owner[order], owner[order])
        labels.append(owner[order] * _MOST_GROUPS + np.arange(len(order)) - starts)
        with np.errstate(divide="ignore"):
            logs.append(np.log(joined[order]))
    if len(plays) == 1:
        return np.exp(logs[0]), labels[0] // _MOST_GROUPS
    shared = labels[0]
    for label in labels[1:]:
        shared = np.intersect1d(shared, label)
    parts = [log[np.searchsorted(label, shared)] for log, label in zip(logs, labels, strict=True)]
    return _exponentiate(np.stack(parts).sum(axis=0)), shared // _MOST_GROUPS


def _exponentiate(logs: FloatArray) -> FloatArray:
    """Return rows of weights that sum to one, from their logarithms."""
    return normalised(np.exp(logs - logs.max(axis=1, keepdims=True, initial=-np.inf)))


def _add_side_knowledge(
    names: FloatArray, makers: IntArray, attack: OverlayAttack, *, linked: int, rng: np.random.Generator
) -> FloatArray:
    """Return the posteriors of an observer that also sees who is online, or knows how fast each member is."""
    places, n_nodes = np.arange(len(makers)), names.shape[1]
    if attack.online < 1.0:
        # The maker is online every time.
        there = rng.random(names.shape) < attack.online**linked
        there[places, makers] = True
        names = normalised(np.where(there, names, 0.0))
    if attack.hop_noise > 0.0:
        means: FloatArray = np.asarray(rng.standard_normal(n_nodes))
        times: FloatArray = means[makers] + rng.standard_normal(len(makers)) * attack.hop_noise / math.sqrt(linked)
        away = (times[:, np.newaxis] - means) ** 2 * linked / (2.0 * attack.hop_noise**2)
        with np.errstate(divide="ignore"):
            names = _exponentiate(np.log(names) - away)
    return names


def count_corruptions(graph: Graph, member: BoolArray) -> FloatArray:
    """Return for each honest member how many more members must be corrupted, one after the other, to name it.

    A cartographer knows at which place of the map the maker is. From the nearest member of the coalition it corrupts
    node after node on the way there; the last one knows the maker's name.
    """
    hops = csgraph.dijkstra(graph.adjacency, indices=np.flatnonzero(member), unweighted=True, min_only=True)
    return np.asarray(hops[~member] - 1.0)


def list_overlay_rows(scheme: Scheme, member: BoolArray, *, seed: int = 0, plays: bool = True) -> list[Row]:
    """Return what a coalition names on a secret overlay, as rows of an audit's ``members``.

    Exact rows are of these members on this overlay; the others are of as many, drawn and dealt anew. ``plays``: the
    coalition is played too.
    """
    graph, honest = scheme.graph, int((~member).sum())
    exposed = graph.adjacency @ member.astype(np.float64) > 0
    bound = naming_bound(float((exposed & ~member).sum()) / honest, honest)
    near = count_corruptions(graph, member)
    of_members = "of honest members"
    rows: list[Row] = []
    if plays:
        for attack, what in (
            (OverlayAttack(name="seizing"), "members seize, know the map, and name the maker"),
            (OverlayAttack(name="steering", aim="neighbours"), "the same, sealing for their neighbours alone"),
        ):
            count = int(member.sum())
            for row in measure_overlay(
                scheme, attack, colluders=count, linked=_ROW_LINKED, replicas=_ROW_REPLICAS, seed=seed
            ):
                known = f" of {row['linked']} linked updates" if row["linked"] > 1 else ""
                for name, column, of in (("", "share", "of updates they read"), ("-members", "by_maker", of_members)):
                    rows.append(
                        {"name": f"{attack.name}{name}-{row['linked']}", "what": what + known, "of": of}
                        | {"share": row[column], "interval": row[f"{column}_interval"], "updates": row["groups"]}
                    )
    links, others = int(graph.degrees.max()), graph.n_nodes - 1
    left = (1.0 - bound) * honest
    named = bound + (1.0 - bound) / (1.0 + max(left - 1.0, 0.0) * _ONLINE**_ABSENCES)
    online = f"seeing who is online (nine tenths), they name it after {_ABSENCES} linked updates, about"
    exact = (
        ("active-maker", "one alone seals for its neighbours in turn, and names these and no others", links / others),
        ("long-run-bound", "the most that these members can ever name", bound),
        ("adaptive-1", "knowing the map, they name it with one more corruption", float((near <= 1).mean())),
        (f"presence-{_ABSENCES}", online, named),
    )
    return rows + [exact_row(name, what, of_members, share) for name, what, share in exact]


def exact_row(name: str, what: str, of: str, share: float) -> Row:
    """Return a row with a share that was computed and not sampled."""
    return {"name": name, "what": what, "of": of, "share": share, "interval": None, "updates": 0}


def play_cheaters(
    scheme: Scheme,
    member: BoolArray,
    *,
    aim: int = HONESTLY,
    takes: bool = False,
    victim: int = -1,
    train_probability: float = 1.0,
    updates: int = _CHEAT_UPDATES,
    seed: int = 0,
) -> tuple[IntArray, IntArray]:
    """Return makers and guesses of a run in which members cheat, and the lane of each update."""
    rng, n_nodes = task_generator(seed, _CHEAT_TASK), scheme.graph.n_nodes
    n_sets = max(min(_SETS, _ALL_SETS // n_nodes), 4)
    pools, honest = draw_pools(scheme, n_sets, rng), np.flatnonzero(~member)
    # Who is sealed for alone is met after as many hops as there are nodes, about.
    share = 0.0 if aim == HONESTLY else 1.0 if takes else float(member.mean())
    hops = int((scheme.price.hops * (1 - share) + 2.0 * n_nodes * share) * updates / _CHEAT_LANES) + n_nodes
    hops = min(hops, _MOST_HOPS // _CHEAT_LANES)
    paths = token_paths(scheme.graph, hops=hops, lanes=_CHEAT_LANES, seed=int(rng.integers(1 << 62)), walk=scheme.walk)
    tables, lanes = [], []
    for lane, path in enumerate(paths):
        out, draws = np.zeros((updates, 2), dtype=np.int64), rng.random(9_999)
        count = play_cheating_lane(path, pools, member, honest, aim, victim, takes, train_probability, draws, out)
        # The first updates begin anywhere, and what becomes of the last is not known.
        tables.append(out[2 : max(count - 1, 2)])
        lanes.append(np.full(len(tables[-1]), lane))
    return np.concatenate(tables), np.concatenate(lanes)


def measure_members(knowledge: Knowledge) -> list[Row]:
    """Return rows of what the colluders of an audit read, make and know: name, what, of what, share, 95% interval."""
    scheme, member, seed = knowledge.scheme, knowledge.is_colluder, knowledge.settings.seed
    lane, by_member = knowledge.grants.lane, knowledge.grants.by_colluder
    read, opened = select_read(knowledge), member[knowledge.sightings.destination]
    # Of the first update of a lane nobody knows who sealed it.
    honest = ~by_member & np.r_[False, lane[1:] == lane[:-1]]
    before = np.r_[False, (read | by_member)[:-1]]
    of_honest = "of all honest updates"
    counted = (
        ("opens", "a member opens it by the rule", opened),
        ("reads", "members read it, sharing keys", read),
        ("reads-both", "members read the model before it and after it", read & before),
    )
    rows = [_estimate_row(name, what, of_honest, flags[honest], lane[honest]) for name, what, flags in counted]
    run, lanes = play_cheaters(scheme, member, takes=True, seed=seed)
    what = "members make it, taking over what they read"
    rows.append(_estimate_row("makes", what, "of all updates", member[run[:, MAKER]], lanes))
    if scheme.hides_names:
        rows += list_overlay_rows(scheme, member, seed=seed)
    else:
        rows += _list_active_rows(scheme, member, of_honest, seed=seed)
    for count, exact_share in scheme.eclipse_shares.items():
        what = f"{count} of {scheme.graph.degrees.min()} neighbours know it for certain"
        rows.append(exact_row(f"eclipse-{count}", what, "of a peer's updates", exact_share))
    return rows


def _list_active_rows(scheme: Scheme, member: BoolArray, of_honest: str, *, seed: int) -> list[Row]:
    """Return what members name who choose the next maker, where keys have names."""
    rows: list[Row] = []
    victim = int(np.flatnonzero(~member)[0])
    run, lanes = play_cheaters(scheme, member, aim=ONE_VICTIM, victim=victim, seed=seed)
    is_victim, known = run[:, MAKER] == victim, run[:, GUESS] == victim
    what = "active-maker seals for one victim, and knows the next maker"
    rows.append(_estimate_row("active-maker", what, "of the victim's updates", known[is_victim], lanes[is_victim]))
    part = _estimate_row("victim", "active-maker lets its victim make", "of all updates", is_victim, lanes)
    rows.append(part | {"times_share": part["share"] / float(scheme.source_prior[victim])})
    run, lanes = play_cheaters(scheme, member, aim=ANYBODY, takes=True, seed=seed)
    others, known = ~member[run[:, MAKER]], run[:, GUESS] == run[:, MAKER]
    what = "members take over what they read, seal for one peer, and know the next maker"
    rows.append(_estimate_row("active-coalition", what, of_honest, known[others], lanes[others]))
    return rows


def _estimate_row(name: str, what: str, of: str, flags: BoolArray, lanes: IntArray) -> Row:
    """Return a row with the share of updates that are so, and its interval."""
    row: Row = {"name": name, "what": what, "of": of, "share": 0.0, "interval": [0.0, 1.0], "updates": len(flags)}
    if not len(flags):
        return row
    mean = estimate_over_lanes(flags.astype(np.float64), lanes, share=True)
    return row | {"share": mean.mean, "interval": [mean.low, mean.high]}
