"""Connections between neighbours: frames, TLS, the port, limits."""

from veilwalk.node.link._connection import Connection, dial, dialing_context, listening_context
from veilwalk.node.link._limits import Limits, TokenBucket
from veilwalk.node.link._pace import PING_SPREAD_S, answer_spread, due_within, wait_until
from veilwalk.node.link._port import Port
from veilwalk.node.link._wire import (
    NO_RUN,
    PROTOCOLS,
    Ack,
    Frame,
    Go,
    Hello,
    Nak,
    Offer,
    Ping,
    Refusal,
    agreed_protocol,
)

__all__ = [
    "NO_RUN",
    "PING_SPREAD_S",
    "PROTOCOLS",
    "Ack",
    "Connection",
    "Frame",
    "Go",
    "Hello",
    "Limits",
    "Nak",
    "Offer",
    "Ping",
    "Port",
    "Refusal",
    "TokenBucket",
    "agreed_protocol",
    "answer_spread",
    "dial",
    "dialing_context",
    "due_within",
    "listening_context",
    "wait_until",
]
