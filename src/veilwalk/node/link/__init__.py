"""Connections between neighbours: frames, TLS, the two ends of a link, limits."""

from veilwalk.node.link._connection import dialing_context, listening_context
from veilwalk.node.link._inlinks import InLinks
from veilwalk.node.link._limits import Limits, TokenBucket
from veilwalk.node.link._outlink import OutLink
from veilwalk.node.link._pace import answer_spread
from veilwalk.node.link._port import Port
from veilwalk.node.link._wire import NO_RUN, PROTOCOLS, Hello, Offer, agreed_protocol

__all__ = [
    "NO_RUN",
    "PROTOCOLS",
    "Hello",
    "InLinks",
    "Limits",
    "Offer",
    "OutLink",
    "Port",
    "TokenBucket",
    "agreed_protocol",
    "answer_spread",
    "dialing_context",
    "listening_context",
]
