"""From a name to the addresses behind it, each name in a thread of its own.

The event loop has a handful of threads for that, which it shares with whatever else takes long, such as following a
new roster. A silent name server keeps each of them for half a minute, and a node that is told to stop waits as long.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import threading
from concurrent.futures import Future

# Names that are being looked up, once each: however often somebody asks meanwhile.
_asked: dict[tuple[str, int], Future[list[str]]] = {}
_asking = threading.Lock()


async def addresses_of(host: str, port: int) -> list[str]:
    """Return the addresses that ``host`` has, best first.

    Raises:
        OSError: It has none, or no name server says so.
    """
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return await asyncio.wrap_future(_look_up(host, port))
    return [host]


def _look_up(host: str, port: int) -> Future[list[str]]:
    with _asking:
        if (host, port) in _asked:
            return _asked[host, port]
        found = _asked[host, port] = Future[list[str]]()
    # Nobody who gives up takes it from the others.
    found.set_running_or_notify_cancel()
    threading.Thread(target=_answer, args=(host, port, found), name="names", daemon=True).start()
    return found


def _answer(host: str, port: int, found: Future[list[str]]) -> None:
    addresses: list[str] = []
    failure: Exception | None = None
    try:
        addresses = [str(entry[4][0]) for entry in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
    except Exception as error:  # noqa: BLE001  a name that cannot be written raises others; whoever asked must know
        failure = error if isinstance(error, OSError) else OSError(f"not a name ({type(error).__name__})")
    with _asking:
        del _asked[host, port]
    if failure is None:
        found.set_result(list(dict.fromkeys(addresses)))
    else:
        found.set_exception(failure)
