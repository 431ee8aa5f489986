"""Connections between neighbours: frames, TLS, the port, limits."""

from veilwalk.node.link._connection import Connection, dial, dialing_context, listening_context
from veilwalk.node.link._limits import PING_SPREAD_S, Limits, TokenBucket, answer_spread, due_within, wait_until
from veilwalk.node.link._port import Port
from veilwalk.node.link._wire import (
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
