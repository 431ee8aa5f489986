"""Opens a folder, and shows its documents: on a page of this machine only, or in one file that stands alone.

The server hands out the parts of the page one by one, under a secret in its address; it has nothing that another site
could use. ``export_page`` writes all of them into one file.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import secrets
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from importlib import resources
from pathlib import Path
from typing import Any

from veilwalk.core.errors import ConfigError, InvalidParameterError, TransportError, VeilwalkError
from veilwalk.core.records import plain, write_atomically
from veilwalk.watch._documents import Document, Source, note

_PAUSE_S = 0.5
#: Scripts of the page in the order in which they run.
SCRIPTS = ("state.js", "map.js", "charts.js", "words.js", "main.js")
_STYLE, _HTML = "page.css", "page.html"
_LAST_PORT = 65_535
_NEWS_S, _BEAT_S = 0.2, 15.0
_HEADERS = {
    # Nothing but our own files, and no request to anybody else.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}


def open_source(folder: Path, *, wait: bool = False) -> Source:
    """Return the documents of a run or a cluster, or refuse the folder; ``wait``: of one that may begin later."""
    source = _LateSource(folder) if wait else _detect_source(folder)
    if source is None:
        raise ConfigError(f"{folder} holds no run and no cluster")
    return source


def _detect_source(folder: Path) -> Source | None:
    # Imported here: a folder of one kind needs nothing of the others.
    if (folder / "run.json").exists():
        from veilwalk.watch._run import RunSource

        return RunSource(folder)
    if (folder / "cluster.json").exists():
        from veilwalk.watch._cluster import ClusterSource

        return ClusterSource(folder)
    if (folder / "plan.json").exists():
        need = "a sweep has no live page: veilwalk sweep prints how far it is, and writes its tables, figure and page"
        raise ConfigError(f"{folder}: {need}")
    return None


class _LateSource(Source):
    """A folder in which something will begin; from then on its documents."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder
        self._source: Source | None = None

    def _read(self) -> Iterator[Document]:
        self._source = self._source or _detect_source(self._folder)
        if self._source is not None:
            yield from self._source.read_news()
            self.finished = self._source.finished

    def compute(self) -> Iterable[Document] | None:
        return None if self._source is None else self._source.compute()


def to_line(document: Document) -> str:
    """Return a document as one line of JSON."""
    return json.dumps(plain(document), separators=(",", ":"), allow_nan=False)


class Feed:
    """The documents of a source so far, as ``lines``; where ``stopped`` is set, no more are read and pages end."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self.lines: list[str] = []
        self.stopped = threading.Event()

    def gather(self) -> list[str]:
        """Return all that there is now, computed documents too."""
        self._take(self._source.read_news())
        self._take(self._source.compute() or ())
        return self.lines

    def start(self) -> None:
        """Read and compute in the background from now on; what is there now is there when this returns."""
        self._take_safely(self._source.read_news())
        for work in (self._follow, self._compute):
            threading.Thread(target=work, daemon=True).start()

    def _take(self, documents: Iterable[Document]) -> None:
        for document in documents:
            if self.stopped.is_set():
                return
            # Appending is atomic, and nothing is ever taken away.
            self.lines.append(to_line(document))

    def _take_safely(self, documents: Iterable[Document]) -> None:
        """Take documents; an error, as of a damaged or removed file, is noted once."""
        try:
            self._take(documents)
        except VeilwalkError as error:
            line = to_line(note(str(error)))
            if line not in self.lines[-20:]:
                self.lines.append(line)

    def _follow(self) -> None:
        while not self._source.finished and not self.stopped.wait(_PAUSE_S):
            self._take_safely(self._source.read_news())

    def _compute(self) -> None:
        while (documents := self._source.compute()) is None and not self.stopped.wait(_PAUSE_S):
            pass
        self._take_safely(documents or ())


def read_part(name: str) -> str:
    """Return one file of the page."""
    return resources.files("veilwalk.watch").joinpath("page", name).read_text()


def export_page(lines: Sequence[str], path: Path) -> Path:
    """Write the page with its documents as one file; its policy allows the very texts in it and nothing else."""
    style, script = read_part(_STYLE), "\n".join(read_part(name) for name in SCRIPTS)
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii") for text in (script, style)]
    own = f"script-src 'sha256-{hashes[0]}'; style-src 'sha256-{hashes[1]}'; img-src data:"
    policy = f"default-src 'none'; {own}; base-uri 'none'; form-action 'none'"
    # A document may say anything; only "<" could end the element it stands in.
    data = "[" + ",".join(lines).replace("<", "\\u003c") + "]"
    head = f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n<style>{style}</style>'
    tail = f'<script type="application/json" id="documents">{data}</script>\n<script>{script}</script>'
    page = read_part(_HTML).replace("<!-- head -->", head).replace("<!-- tail -->", tail)
    write_atomically(path, page.encode())
    return path


def application(feed: Feed, *, token: str, hosts: Sequence[str] = ()) -> Any:
    """Return the ASGI application: page, its parts and its events under ``/TOKEN/``, and nothing elsewhere.

    Requests whose Host is not loopback or one of ``hosts`` are refused: so a name that somebody else points at this
    machine opens nothing.
    """
    from starlette.applications import Starlette
    from starlette.responses import PlainTextResponse, Response, StreamingResponse
    from starlette.routing import Route

    allowed = {host.lower() for host in ("127.0.0.1", "localhost", "[::1]", *hosts)}
    scripts = "\n".join(f'<script src="{name}" defer></script>' for name in SCRIPTS)
    html = read_part(_HTML).replace("<!-- head -->", f'<link rel="stylesheet" href="{_STYLE}">\n{scripts}')

    def refusal(request: Any) -> Any:
        host = request.headers.get("host", "").lower()
        if host.rpartition(":")[0] not in allowed and host not in allowed:
            return PlainTextResponse("this page is not served under that name\n", 403, _HEADERS)
        if not hmac.compare_digest(request.path_params["token"].encode(), token.encode()):
            return PlainTextResponse("not found\n", 404, _HEADERS)
        return None

    async def page(request: Any) -> Any:
        return refusal(request) or Response(html, media_type="text/html; charset=utf-8", headers=_HEADERS)

    async def piece(request: Any) -> Any:
        name = request.path_params["name"]
        if (refused := refusal(request)) is not None or name not in {*SCRIPTS, _STYLE}:
            return refused or PlainTextResponse("not found\n", 404, _HEADERS)
        kind = "text/css" if name == _STYLE else "text/javascript"
        return Response(read_part(name), media_type=f"{kind}; charset=utf-8", headers=_HEADERS)

    async def events(request: Any) -> Any:
        if (refused := refusal(request)) is not None:
            return refused
        first = request.headers.get("last-event-id", "")
        # Python refuses to read very long numbers, and no feed has so many documents.
        start = int(first) + 1 if first.isascii() and first.isdigit() and len(first) < 16 else 0
        return StreamingResponse(_event_stream(feed, start), media_type="text/event-stream", headers=_HEADERS)

    return Starlette(
        routes=[Route("/{token}/", page), Route("/{token}/events", events), Route("/{token}/{name}", piece)]
    )


async def _event_stream(feed: Feed, place: int) -> AsyncIterator[str]:
    """Yield documents as server-sent events, from ``place`` on; a comment now and then tests the connection."""
    quiet = 0.0
    while not feed.stopped.is_set():
        lines = feed.lines[place:]
        for line in lines:
            yield f"id: {place}\ndata: {line}\n\n"
            place += 1
        quiet = 0.0 if lines else quiet + _NEWS_S
        if quiet >= _BEAT_S:
            quiet = 0.0
            yield ": still here\n\n"
        await asyncio.sleep(_NEWS_S)


def serve(
    feed: Feed, *, host: str = "127.0.0.1", port: int = 0, hosts: Sequence[str] = (), announce: Callable[[str], None]
) -> None:
    """Serve a page until interrupted; ``announce`` receives its address once it can be opened."""
    if not 0 <= port <= _LAST_PORT:
        raise InvalidParameterError("port", port, f"from 0 to {_LAST_PORT}")
    token = secrets.token_urlsafe(16)
    try:
        import uvicorn

        app = application(feed, token=token, hosts=(*hosts, host))
    except ModuleNotFoundError as error:
        need = "pip install 'veilwalk[watch]' brings it; --export needs neither"
        raise ConfigError(f"{error.name} is missing: {need}") from None
    try:
        listener = socket.create_server((host, port))
    except OSError as error:
        raise TransportError(f"cannot serve a page on {host}:{port}: {error.strerror or error}") from None

    class Server(uvicorn.Server):
        def handle_exit(self, *signal: Any) -> None:
            # Else it waits for open pages, which stay connected for news.
            feed.stopped.set()
            super().handle_exit(*signal)

    with listener:
        config = uvicorn.Config(
            app, log_level="warning", access_log=False, server_header=False, timeout_graceful_shutdown=1, lifespan="off"
        )
        feed.start()
        # The listener takes connections already; they are answered in a moment.
        announce(f"http://{host}:{listener.getsockname()[1]}/{token}/")
        try:
            with suppress(KeyboardInterrupt):
                Server(config).run(sockets=[listener])
        finally:
            feed.stopped.set()
