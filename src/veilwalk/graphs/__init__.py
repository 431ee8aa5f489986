"""The network: a checked CSR value, generators, readers, distances and shells."""

from veilwalk.graphs._graph import Graph

__all__ = ["Graph"]
