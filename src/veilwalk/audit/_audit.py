"""The audit: play the protocol, attack it with every observer asked for, score against the truth."""

from __future__ import annotations

from dataclasses import asdict

from veilwalk.audit._attacks import attack
from veilwalk.audit._bench import Bench
from veilwalk.audit._large import attack_large
from veilwalk.audit._report import Scored, observer_report
from veilwalk.audit._run import Say, choose_colluders, play
from veilwalk.audit._settings import (
    LARGE_NODES,
    AuditSettings,
    check,
    chosen_horizon,
    require_memory,
    walked_chain,
)
from veilwalk.chains import WalkChain
from veilwalk.core.records import Record
from veilwalk.design import DestinationLaw
from veilwalk.graphs import Graph, distances


def audit(
    graph: Graph,
    law: DestinationLaw,
    settings: AuditSettings,
    *,
    names: tuple[str, str],
    floor: float | None = None,
    say: Say = lambda _: None,
) -> Record:
    """Audit ``law`` on ``graph``.

    Args:
        graph: the network.
        law: the law, designed for that graph.
        settings: what to look at and how hard.
        names: of graph and law, for the record.
        floor: the distance entropy the design promises, in nats, to be drawn beside what is measured.
        say: told what is going on.
    """
    horizon, predicted, profile = 0, None, []
    if graph.n_nodes >= LARGE_NODES:
        run, found = attack_large(graph, law, settings, say)
    else:
        bench, found = attacked(graph, law, settings, say=say)
        run, horizon, predicted, profile = bench.run, bench.horizon, bench.predicted_hops, bench.profile.rows()
    reports = {name: observer_report(scored) for name, scored in found.items()}
    hops = run.hops_per_update
    return Record(
        kind="audit",
        params={"graph": names[0], "law": names[1], "support": str(law.support), "horizon": horizon}
        | {"nodes": graph.n_nodes, "graph_digest": graph.digest, "anonymity_floor_nats": floor}
        | {key: value for key, value in asdict(settings).items() if key not in {"seed", "horizon"}},
        seed=settings.seed,
        result={
            "updates": len(run.seen),
            "complete": run.complete,
            "hops_per_update": hops.mean,
            "hops_per_update_interval": [hops.low, hops.high],
            "hops_per_update_predicted": predicted,
            "return_time_mean": float(run.seen.return_time.mean()),
            "observers": reports,
            "posterior_by_distance": profile,
        },
    )


def attacked(
    graph: Graph, law: DestinationLaw, settings: AuditSettings, *, say: Say = lambda _: None
) -> tuple[Bench, dict[str, Scored]]:
    """Play and attack as :func:`audit` does, and return every update's scores instead of a record of their means."""
    check(graph, law, settings)
    chain = walked_chain(graph, settings.walk)
    # On arcs all this is dear: only where return times are read from it.
    exact = bool(settings.timed) and settings.posterior == "exact"
    known = chain if exact or isinstance(chain, WalkChain) else None
    horizon = settings.horizon if known is None else chosen_horizon(known, law, settings)
    require_memory(graph, law, settings, horizon)
    colluders = choose_colluders(graph.n_nodes, settings.colluders if settings.colluding else 0, settings.seed)
    run = play(graph, law, settings, colluders, say)
    bench = Bench(graph, law, settings, run, apart=distances(graph), chain=known, horizon=horizon)
    return bench, attack(bench, say)
