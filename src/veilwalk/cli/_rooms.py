"""The rooms that verbs call, each imported at its first use: help and completion wait for none of them."""

# ruff: noqa: F401, PLR0402
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    # Not from the package: it offers functions under the names of some rooms.
    import veilwalk.audit as audit
    import veilwalk.design as design
    from veilwalk import engine, experiments, graphs, learning, node, report, theory, training, watch
    from veilwalk.node import cluster, members, peer


def __getattr__(name: str) -> Any:
    inside = "veilwalk.node" if name in {"cluster", "members", "peer"} else "veilwalk"
    return import_module(f"{inside}.{name}")
