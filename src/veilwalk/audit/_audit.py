"""The audit: play the protocol, attack it with every observer asked for, score against the truth."""

from __future__ import annotations

from dataclasses import asdict

from veilwalk.audit._attacks import Bench, attack
from veilwalk.audit._report import observer_report
from veilwalk.audit._run import Say, choose_colluders, play
from veilwalk.audit._settings import CHAINED, AuditSettings, check, chosen_horizon, require_memory
from veilwalk.chains import WalkChain, mean_hitting_times
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
    check(graph, law, settings)
    # A walk that remembers is no chain on the nodes; check() has left only observers that need none.
    chain = WalkChain.of(graph, settings.walk if settings.walk in CHAINED else "simple")
    hitting = mean_hitting_times(chain)
    horizon = chosen_horizon(chain, law, settings)
    require_memory(graph, law, settings, horizon)
    colluders = choose_colluders(graph.n_nodes, settings.colluders if settings.colluding else 0, settings.seed)
    run = play(graph, law, settings, colluders, say)
    bench = Bench(chain, law, settings, run, apart=distances(graph), hitting=hitting, horizon=horizon)
    reports = {name: observer_report(scored) for name, scored in attack(bench, say).items()}
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
            "hops_per_update_predicted": law.mean_hops(hitting) if settings.walk in CHAINED else None,
            "return_time_mean": float(run.seen.return_time.mean()),
            "observers": reports,
            "posterior_by_distance": bench.profile.rows(),
        },
    )
