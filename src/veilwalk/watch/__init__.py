"""Watch a run: a page in the browser, live while it is made, a replay afterwards, or one file that stands alone."""

from veilwalk.watch._documents import Document, Source
from veilwalk.watch._feed import Feed
from veilwalk.watch._layout import layout
from veilwalk.watch._node import NodeSource
from veilwalk.watch._open import open_source
from veilwalk.watch._page import export_page
from veilwalk.watch._server import application, serve

__all__ = ["Document", "Feed", "NodeSource", "Source", "application", "export_page", "layout", "open_source", "serve"]
