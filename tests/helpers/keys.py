"""Key folders for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from veilwalk.node.members._keys import NodeKeys, new_node_keys
from veilwalk.node.sealing._kem import Suite


def new_keys(path: Path, **options: Any) -> NodeKeys:
    """Return the keys of one clinic."""
    settled: dict[str, Any] = {"node_id": "clinic-a", "address": "127.0.0.1:7100", "suite": Suite.X25519} | options
    return new_node_keys(path, **settled)
