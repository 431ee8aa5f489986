"""Talks to a wire with bytes at hand."""

from __future__ import annotations

from veilwalk.node.link._wire import Frame, Wire


def feed(wire: Wire, data: bytes) -> list[Frame]:
    """Return the frames that ``data`` completes, which comes in pieces as the wire has room."""
    frames = []
    view = memoryview(data)
    while view:
        room = wire.buffer()
        count = min(len(room), len(view))
        room[:count] = view[:count]
        view = view[count:]
        frame = wire.filled(count)
        while frame is not None:
            frames.append(frame)
            frame = wire.following()
    return frames
