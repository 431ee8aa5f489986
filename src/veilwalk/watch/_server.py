"""The server of a page: this machine only, a secret in its address, and nothing that another site could use."""

from __future__ import annotations

import asyncio
import hmac
import secrets
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from veilwalk.core.errors import ConfigError, InvalidParameterError, TransportError
from veilwalk.watch._feed import Feed
from veilwalk.watch._page import POLICY, SCRIPTS, STYLE, part, served

_TOKEN_BYTES = 16
_LAST_PORT = 65_535
_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_TYPES = {".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8"}
_NEWS_S, _BEAT_S = 0.2, 15.0
_HEADERS = {
    "Content-Security-Policy": POLICY,
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}


def new_token() -> str:
    """Return a secret for an address."""
    return secrets.token_urlsafe(_TOKEN_BYTES)


def application(feed: Feed, *, token: str, hosts: Sequence[str] = ()) -> Any:
    """Return the ASGI application: page, its parts and its events under ``/TOKEN/``, and nothing elsewhere.

    Requests whose Host is not loopback or one of ``hosts`` are refused: so a name that somebody else points at this
    machine opens nothing.
    """
    try:
        from starlette.applications import Starlette
        from starlette.responses import PlainTextResponse, Response, StreamingResponse
        from starlette.routing import Route
    except ModuleNotFoundError as error:
        raise _missing(error) from None

    allowed = {host.lower() for host in (*_LOOPBACK, *hosts)}

    def refusal(request: Any) -> Any:
        host = request.headers.get("host", "").lower()
        if host.rpartition(":")[0] not in allowed and host not in allowed:
            return PlainTextResponse("this page is not served under that name\n", 403, _HEADERS)
        if not hmac.compare_digest(request.path_params["token"].encode(), token.encode()):
            return PlainTextResponse("not found\n", 404, _HEADERS)
        return None

    async def page(request: Any) -> Any:
        return refusal(request) or Response(served(), media_type="text/html; charset=utf-8", headers=_HEADERS)

    async def piece(request: Any) -> Any:
        name = request.path_params["name"]
        if (refused := refusal(request)) is not None or name not in {*SCRIPTS, STYLE}:
            return refused or PlainTextResponse("not found\n", 404, _HEADERS)
        return Response(part(name), media_type=_TYPES[name[name.rindex(".") :]], headers=_HEADERS)

    async def events(request: Any) -> Any:
        if (refused := refusal(request)) is not None:
            return refused
        first = request.headers.get("last-event-id", "")
        # So many digits have all that were ever told; longer ones Python refuses to read.
        heard = int(first) + 1 if first.isascii() and first.isdigit() and len(first) < 16 else 0
        return StreamingResponse(_told(feed, heard), media_type="text/event-stream", headers=_HEADERS)

    return Starlette(
        routes=[Route("/{token}/", page), Route("/{token}/events", events), Route("/{token}/{name}", piece)]
    )


async def _told(feed: Feed, heard: int) -> AsyncIterator[str]:
    """Documents as server-sent events; a comment now and then shows whether the page is still there."""
    quiet = 0.0
    while not feed.stopped:
        lines = feed.lines(heard)
        for line in lines:
            yield f"id: {heard}\ndata: {line}\n\n"
            heard += 1
        quiet = 0.0 if lines else quiet + _NEWS_S
        if quiet >= _BEAT_S:
            quiet = 0.0
            yield ": still here\n\n"
        await asyncio.sleep(_NEWS_S)


def serve(
    feed: Feed, *, host: str = "127.0.0.1", port: int = 0, hosts: Sequence[str] = (), tell: Callable[[str], None]
) -> None:
    """Serve a page until interrupted; ``tell`` is told its address once it can be opened.

    Raises:
        InvalidParameterError: There is no such port.
        TransportError: The address cannot be used.
        ConfigError: The extra is not installed.
    """
    if not 0 <= port <= _LAST_PORT:
        raise InvalidParameterError("port", port, f"from 0 to {_LAST_PORT}")
    token = new_token()
    app = application(feed, token=token, hosts=(*hosts, host))
    try:
        import uvicorn
    except ModuleNotFoundError as error:
        raise _missing(error) from None
    try:
        listener = socket.create_server((host, port))
    except OSError as error:
        raise TransportError(f"cannot serve a page on {host}:{port}: {error.strerror or error}") from None

    class Server(uvicorn.Server):
        def handle_exit(self, *signal: Any) -> None:
            # Else it waits for pages that are open, which hang on for news.
            feed.stop()
            super().handle_exit(*signal)

    with listener:
        config = uvicorn.Config(
            app, log_level="warning", access_log=False, server_header=False, timeout_graceful_shutdown=1, lifespan="off"
        )
        feed.start()
        # The listener takes connections already; they are answered in a moment.
        tell(f"http://{host}:{listener.getsockname()[1]}/{token}/")
        try:
            Server(config).run(sockets=[listener])
        except KeyboardInterrupt:
            pass
        finally:
            feed.stop()


def _missing(error: ModuleNotFoundError) -> ConfigError:
    return ConfigError(f"{error.name} is missing: pip install 'veilwalk[watch]' brings it; --export needs neither")
