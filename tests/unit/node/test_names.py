"""Members that have names instead of addresses: slow, unknown, or with a first address that is dead."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.helpers.members import size_of

from veilwalk.core.errors import TransportError
from veilwalk.node.link import dialing_context
from veilwalk.node.link._connection import dial


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> dict[str, Callable[[], list[str]]]:
    """Names, and what says which addresses they have."""
    known: dict[str, Callable[[], list[str]]] = {}
    ask = socket.getaddrinfo

    def answer(host: str, port: int, *values: Any, **named: Any) -> list[Any]:
        if host not in known:
            return ask(host, port, *values, **named)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in known[host]()]

    monkeypatch.setattr(socket, "getaddrinfo", answer)
    return known


def call(net: Any, name: str, timeout_s: float) -> Any:
    """Dial n1 by a name, as n0."""
    member = net.roster.member("n1")
    context = dialing_context(net.keys["n0"], net.roster.trust_anchors(["n1"]))
    return dial(
        replace(member, address=f"{name}:{member.port}"), context, message_bytes=size_of(net), timeout_s=timeout_s
    )


def test_a_silent_name_server_holds_up_nothing_else(network: Callable[..., Any], names: dict[str, Any]) -> None:
    """Neither what threads do besides, nor the stop; and a name that is asked for again and again is asked once.

    The mutant is the event loop's own resolver, with its six or so threads.
    """
    answered, asked = threading.Event(), []

    def silent() -> list[str]:
        asked.append(1)
        answered.wait(8)
        return []

    names.update({f"h{number}.silent": silent for number in range(40)})
    net = network(4, starts=False)

    async def main() -> list[Any]:
        calls = [call(net, f"h{number}.silent", 0.2) for number in range(40) for _ in range(2)]
        found = await asyncio.gather(*calls, return_exceptions=True)
        assert await asyncio.wait_for(asyncio.to_thread(lambda: 7), 3) == 7
        return found

    begun = time.monotonic()
    found = asyncio.run(main())
    took_s = time.monotonic() - begun
    answered.set()
    assert took_s < 5
    assert len(asked) == 40
    assert {type(error) for error in found} == {TransportError}
    assert "no name server answers in 0.2 s" in str(found[0])


def test_an_address_that_is_dead_leaves_time_for_the_next(network: Callable[..., Any], names: dict[str, Any]) -> None:
    """One takes the connection and says nothing; the second is the member's own. A name of nobody's is said to be."""
    names["two.example"] = lambda: ["127.0.0.2", "127.0.0.2", "127.0.0.1"]
    names["dead.example"] = lambda: ["127.0.0.3"]
    names["none.example"] = list

    async def main() -> None:
        net = network(4, starts=False)
        await net.start("n1")
        with socket.create_server(("127.0.0.2", net.roster.member("n1").port)):
            (await call(net, "two.example", 3.0)).close()
        with pytest.raises(TransportError, match="a name without addresses"):
            await call(net, "none.example", 1.0)
        with pytest.raises(TransportError, match=r"n1 at .*: connection refused"):
            await call(net, "dead.example", 1.0)
        await net.stop()

    asyncio.run(main())
