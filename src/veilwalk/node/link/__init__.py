"""Connections between neighbours: frames, TLS, limits."""

from typing import TYPE_CHECKING

from veilwalk.core.rooms import open_room

if TYPE_CHECKING:
    from veilwalk.node.link._connection import Connection, accept, dial, dialing_context, listening_context
    from veilwalk.node.link._limits import PING_SPREAD_S, Limits, TokenBucket, answer_spread, due_within, wait_until
    from veilwalk.node.link._wire import PROTOCOLS, Ack, Frame, Go, Hello, Nak, Offer, Ping, Refusal, agreed_protocol
else:
    __getattr__, __all__ = open_room(__name__)
