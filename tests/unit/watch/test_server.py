"""Who is let in, and what the page may ask for."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from veilwalk.core.errors import InvalidParameterError
from veilwalk.watch import SCRIPTS, Document, Feed, Source, application, export_page, read_part, serve

pytest.importorskip("starlette", reason="the extra watch is not installed")


#: What stands in the address.
PLACE = "secret"


class TwoDocuments(Source):
    """A source that has two things to say."""

    finished = True

    def read_news(self) -> Iterator[Document]:
        """Say both."""
        yield from ({"kind": "about", "title": "</script><b>"}, {"kind": "event", "text": "two"})


@pytest.fixture(scope="module")
def feed() -> Feed:
    found = Feed(TwoDocuments())
    found.gather()
    return found


def asked(app: Any, path: str, host: str = "127.0.0.1:5000", events: int = 0, **headers: str) -> tuple[int, Any, str]:
    """One request, without a socket; of a stream so many events."""
    sent: list[dict[str, Any]] = []

    async def call() -> None:
        own = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "GET", "scheme": "http",
            "path": path, "raw_path": path.encode(), "query_string": b"", "root_path": "",
            "headers": [(b"host", host.encode()), *own],
            "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 5000),
        }  # fmt: skip
        enough = asyncio.Event()

        async def receive() -> dict[str, Any]:
            await enough.wait()
            return {"type": "http.disconnect"}

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)
            if events and sum(one.get("body", b"").count(b"\n\n") for one in sent) >= events:
                enough.set()

        await asyncio.wait_for(app(scope, receive, send), 10)

    asyncio.run(call())
    start = sent[0]
    body = b"".join(one.get("body", b"") for one in sent[1:]).decode()
    return start["status"], {k.decode(): v.decode() for k, v in start["headers"]}, body


def test_only_who_knows_the_address_and_speaks_to_this_machine_gets_in(feed: Feed) -> None:
    """A wrong secret finds nothing; a name that points here from outside is refused, unless it was allowed."""
    app = application(feed, token=PLACE)
    assert asked(app, "/secret/")[0] == 200
    assert asked(app, "/secret/", "localhost:5000")[0] == 200
    assert asked(app, "/secret/", "[::1]:5000")[0] == 200
    for path in ("/", "/wrong/", "/wrong/events", "/wrong/main.js", "/secret/other.js", "/secret/../_server.py"):
        assert asked(app, path)[0] == 404, path
    for host in ("evil.example:5000", "evil.example", "127.0.0.1.evil.example", "", "127.0.0.1:5000:1"):
        for path in ("/secret/", "/secret/events", "/secret/main.js"):
            assert asked(app, path, host)[0] == 403, host
    allowed = application(feed, token=PLACE, hosts=("lab.example",))
    assert asked(allowed, "/secret/", "lab.example:80")[0] == 200
    assert asked(app, "/secret/", "lab.example:80")[0] == 403


def test_the_page_may_ask_nobody_else_for_anything(feed: Feed) -> None:
    """Its policy allows its own files; its parts name no other address, and no part is missing."""
    app = application(feed, token=PLACE)
    status, headers, page = asked(app, "/secret/")
    assert status == 200
    policy = headers["content-security-policy"]
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy
    assert "*" not in policy
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cache-control"] == "no-store"
    for name in re.findall(r'(?:src|href)="([^"]+)"', page):
        if name != "data:,":
            assert asked(app, f"/secret/{name}")[0] == 200, name
    for name in (*SCRIPTS, "page.css", "page.html"):
        outside = set(re.findall(r"(?:https?:)?//[a-z][\w.-]+\.[a-z]+", read_part(name))) - {"http://www.w3.org"}
        assert not outside, name
        assert "style=" not in read_part(name) or name.endswith(".js"), "the policy forbids it"


def test_events_go_on_where_a_page_had_stopped(feed: Feed) -> None:
    """All of them to a new page, the rest to one that comes back."""
    app = application(feed, token=PLACE)
    status, headers, body = asked(app, "/secret/events", events=2)
    assert (status, headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
    assert re.findall(r"^id: (\d+)$", body, re.MULTILINE) == ["0", "1"]
    _, _, rest = asked(app, "/secret/events", events=1, last_event_id="0")
    assert re.findall(r"^id: (\d+)$", rest, re.MULTILINE) == ["1"]
    for odd in ("nonsense", "9" * 5000):
        assert asked(app, "/secret/events", events=2, last_event_id=odd)[0] == 200
    assert asked(app, "/wrong/events", last_event_id="9" * 5000)[0] == 404


def test_one_file_runs_its_own_script_and_no_other(feed: Feed, tmp_path: Path) -> None:
    """The policy names the very texts by hash; what documents say cannot end the element they stand in."""
    page = export_page(feed.lines, tmp_path / "page.html").read_text()
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]+)"', page)
    assert policy is not None
    scripts = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    assert len(scripts) == 1
    digest = base64.b64encode(hashlib.sha256(scripts[0].encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy[1]
    assert "</script><b>" not in page
    assert "\\u003c/script>\\u003cb>" in page
    assert re.findall(r"<(?:script|link|img)[^>]+(?:src|href)=\"(?!data:,)", page) == []


@pytest.mark.parametrize("port", [-1, 65536])
def test_a_port_that_is_none_is_refused_by_name(feed: Feed, port: int) -> None:
    with pytest.raises(InvalidParameterError, match=f"port = {port}: must be from 0 to 65535"):
        serve(feed, port=port, announce=print)
