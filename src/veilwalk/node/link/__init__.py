"""Connections between neighbours: frames, TLS, the two ends of a link, limits."""

from veilwalk.node.link._connection import dialing_context, listening_context
from veilwalk.node.link._inlinks import InLinks
from veilwalk.node.link._limits import Limits
from veilwalk.node.link._outlink import OutLink
from veilwalk.node.link._wire import PROTOCOL, Hello, Offer

__all__ = [
    "PROTOCOL",
    "Hello",
    "InLinks",
    "Limits",
    "Offer",
    "OutLink",
    "dialing_context",
    "listening_context",
]
