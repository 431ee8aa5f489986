"""Watch a run: a page in the browser, live while it goes on, a replay afterwards, or one file that stands alone."""

from typing import TYPE_CHECKING

from veilwalk.core.rooms import open_room

if TYPE_CHECKING:
    from veilwalk.watch._documents import Document, Source, draw_network, layout
    from veilwalk.watch._node import NodeSource
    from veilwalk.watch._run import PlayedWalk
    from veilwalk.watch._server import SCRIPTS, Feed, application, export_page, open_source, read_part, serve, to_line
else:
    __getattr__, __all__ = open_room(__name__)
