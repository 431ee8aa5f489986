"""veilwalk: train a model across a network of peers so that a receiver can hardly tell whose update it got.

    >>> import veilwalk as vw
    >>> graph = vw.random_regular(20, 3, seed=1)
    >>> designed = vw.design(graph, law="uniform-node", support=(2, 3), walk="non-backtracking")
    >>> audit = vw.audit(designed.scheme, updates=2_000, observers=("prior", "last-hop"))
    >>> audit["last-hop"].hit_ratio > audit["prior"].hit_ratio
    True

The rooms, lower ones first; each may import only what stands below it (checked by import-linter):

* ``core``: errors, validation, random sources, records, progress, units, the walk as a value;
* ``engine``: jobs by number on any executor, finished ones kept as files;
* ``graphs``: the network;
* ``theory`` | ``chains`` | ``walks``: three independent roads to the laws of the walk (closed forms, exact chains,
  compiled sampling);
* ``design``: destination laws and schemes, what they guarantee and cost;
* ``audit`` | ``learning``: observers and what really leaks | learners, partitions, privacy of noise;
* ``training``: a run from scenario to report;
* ``experiments`` | ``node``: the paper's figures and comparisons | the real peer;
* ``report``: tables and figures from records;
* ``cli``: one thin module a verb.

This is the front door: names of these rooms, loaded when they are first asked for, and nothing of its own.
"""

from veilwalk.core.version import __version__

# Not from typing, and with no other import above: Ctrl-C must find the command line ready at once.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any

    from veilwalk.audit import Audit, AuditSettings, Observer, audit
    from veilwalk.core.support import DistanceSupport
    from veilwalk.core.walk import Walk
    from veilwalk.design import (
        Design,
        DestinationLaw,
        Scheme,
        choose_scheme,
        design,
        design_regular,
        load_law,
        recommend,
        save_law,
        save_scheme,
    )
    from veilwalk.experiments import Sweep, sweep
    from veilwalk.graphs import (
        Graph,
        barabasi_albert,
        complete,
        erdos_renyi,
        from_networkx,
        from_sparse,
        hypercube,
        parse_graph_spec,
        random_regular,
        read_graph,
        ring,
        torus,
        watts_strogatz,
    )
    from veilwalk.learning import (
        Data,
        Learner,
        Partitions,
        TorchLearner,
        UpdateResult,
        check_learner,
        from_flower,
        from_peft,
        load_data,
        load_model,
        make_learner,
        save_model,
    )
    from veilwalk.training import Scenario, TrainingRun, train

_ROOM_OF = {
    "core.support": ("DistanceSupport",),
    "core.walk": ("Walk",),
    "graphs": (
        "Graph", "barabasi_albert", "complete", "erdos_renyi", "from_networkx", "from_sparse", "hypercube",
        "parse_graph_spec", "random_regular", "read_graph", "ring", "torus", "watts_strogatz",
    ),
    "design": (
        "Design", "DestinationLaw", "Scheme", "choose_scheme", "design_regular", "load_law",
        "recommend", "save_law", "save_scheme",
    ),
    "audit": ("Audit", "AuditSettings", "Observer"),
    "learning": (
        "Data", "Learner", "Partitions", "TorchLearner", "UpdateResult", "check_learner", "from_flower", "from_peft",
        "load_data", "load_model", "make_learner", "save_model",
    ),
    "experiments": ("Sweep", "sweep"),
    "training": ("Scenario", "TrainingRun", "train"),
}  # fmt: skip
_ROOMS = (
    "audit", "chains", "design", "engine", "experiments", "graphs", "learning", "node", "theory", "training", "walks",
)  # fmt: skip

__all__ = [
    "Audit",
    "AuditSettings",
    "Data",
    "Design",
    "DestinationLaw",
    "DistanceSupport",
    "Graph",
    "Learner",
    "Observer",
    "Partitions",
    "Scenario",
    "Scheme",
    "Sweep",
    "TorchLearner",
    "TrainingRun",
    "UpdateResult",
    "Walk",
    "__version__",
    "audit",
    "barabasi_albert",
    "check_learner",
    "choose_scheme",
    "complete",
    "design",
    "design_regular",
    "erdos_renyi",
    "from_flower",
    "from_networkx",
    "from_peft",
    "from_sparse",
    "hypercube",
    "load_data",
    "load_law",
    "load_model",
    "make_learner",
    "parse_graph_spec",
    "random_regular",
    "read_graph",
    "recommend",
    "ring",
    "save_law",
    "save_model",
    "save_scheme",
    "sweep",
    "torus",
    "train",
    "watts_strogatz",
]


def __getattr__(name: str) -> "Any":
    from veilwalk.core.rooms import lazy_attributes

    return lazy_attributes(__name__, _ROOM_OF, _ROOMS)(name)


def __dir__() -> list[str]:
    return sorted(__all__)
