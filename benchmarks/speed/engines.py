"""The same bytes on every engine, and what each takes: an audit, a play on 10^5 nodes, a sweep of trainings.

Run ``python -m benchmarks.speed.engines``; a few minutes on two cores. It prints a line for each computation and
engine: the first digits of the digest of what came out, and seconds; and ends with 1 where digests differ. ``--nodes``
makes the play smaller, ``--updates`` the audit, ``--engines`` names others.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from veilwalk.audit import audit
from veilwalk.core.tables import csv_table
from veilwalk.core.walk import Walk
from veilwalk.design import choose_scheme
from veilwalk.engine import Engine, open_engine
from veilwalk.experiments import sweep
from veilwalk.graphs import parse_graph_spec

Work = Callable[[Engine], bytes]


def audited(updates: int, engine: Engine) -> bytes:
    """Audit the paper's network under a walk that does not turn, by rehearsal."""
    scheme = choose_scheme(parse_graph_spec("rrg:300:3:seed=1"), "paper", support=(2, 6), walk=Walk("non-backtracking"))
    asked: dict[str, Any] = {"posterior": "rehearsed", "rehearsed_hops": 2 * updates}
    found = audit(scheme, updates=updates, observers="prior,last-hop,path", **asked, executor=engine)
    return found.record().to_json().encode()


def played(nodes: int, engine: Engine) -> bytes:
    """Play updates of the law that is uniform over nodes."""
    scheme = choose_scheme(parse_graph_spec(f"rrg:{nodes}:3:seed=1"), "uniform-node", support=(2, 6))
    with open_engine(engine) as workers:
        return scheme.run_updates(updates=4_000, seed=1, replicas=16, burn_in=1, executor=workers).tobytes()


def trained(engine: Engine) -> bytes:
    """Train on two partitions with three seeds each."""
    fixed = {"graph": "rrg:60:3:seed=1", "updates": 300, "attack": 0, "compare": "plain-walk"}
    grid: dict[str, list[Any]] = {"partition": ["iid", "dirichlet:0.3"], "seed": [1, 2, 3]}
    return csv_table(sweep("train", settings=fixed, grid=grid, executor=engine).rows)


def main() -> None:
    """Do everything on every engine."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--updates", type=int, default=100_000)
    parser.add_argument("--engines", nargs="+", default=["serial", "process:2", "ray"])
    options = parser.parse_args()
    works: dict[str, Work] = {
        "audit": partial(audited, options.updates),
        "play": partial(played, options.nodes),
        "sweep": trained,
    }
    differ = False
    for name, work in works.items():
        digests = set()
        for engine in options.engines:
            with open_engine(engine) as executor:
                began = time.perf_counter()
                digest = hashlib.sha256(work(executor)).hexdigest()[:16]
            digests.add(digest)
            print(f"{name:8} {engine:12} {digest} {time.perf_counter() - began:8.1f} s", flush=True)
        differ |= len(digests) > 1
    sys.exit(differ)


if __name__ == "__main__":
    main()
