"""``veilwalk watch``: a run in the browser, live or again; and the page beside ``train`` and ``cluster up``."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from veilwalk.core.errors import ConfigError

_END_S = 3.0
Watch = Annotated[
    bool,
    typer.Option("--watch", help="Show the run in a browser while it goes on, on this machine; Ctrl-C ends the page."),
]


def watch(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The --out of train, sweep or cluster up.")],
    *,
    export: Annotated[
        Path | None, typer.Option(metavar="PAGE.html", help="Write the page as one file that needs nothing, and stop.")
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="The run may begin later.")] = False,
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Where to serve; others than loopback let others in.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to serve at; 0: any that is free.")] = 0,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Also answer under this name, as behind a tunnel; may be repeated."),
    ] = None,
) -> None:
    """Show a run in a browser, live or again.

    The walk on the network, what was learnt, what an observer can infer, and the price: live while it is made, a replay
    afterwards. Prints an address with a secret in it; nobody else can open it, and the page asks no other machine for
    anything. Ctrl-C ends it.

    Example: veilwalk watch run --export page.html
    """
    from veilwalk.watch import Feed, export_page, open_source, serve

    if not wait and not folder.exists():
        raise ConfigError(f"{folder} does not exist; --wait waits for a run to begin there")
    feed = Feed(open_source(folder, wait=wait))
    if export is not None:
        typer.echo(f"wrote {export_page(feed.gather(), export)}")
        return
    serve(feed, host=host, port=port, hosts=allow_host or (), tell=typer.echo)


@contextlib.contextmanager
def page_of(folder: Path | None, *, wanted: bool) -> Iterator[None]:
    """Show ``folder`` while what is inside goes on, and after that until the page is ended.

    By a process of its own: what is trained here has the same time and the same bits as without.
    """
    if not wanted or folder is None:
        yield
        return
    command = [sys.executable, "-m", "veilwalk", "watch", str(folder), "--wait"]
    # Not among the results, which may be JSON.
    page = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sys.stderr)  # noqa: S603  our own program
    done = False
    try:
        yield
        done = True
        typer.echo("the page stays until Ctrl-C", err=True)
        page.wait()
    except KeyboardInterrupt:
        # After the run it is how the page is ended.
        if not done:
            raise
    finally:
        page.terminate()
        try:
            page.wait(_END_S)
        except subprocess.TimeoutExpired:
            # In the midst of a posterior; it has nothing to lose.
            page.kill()
            page.wait()
