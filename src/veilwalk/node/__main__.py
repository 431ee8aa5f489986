"""``python -m veilwalk.node node.toml``: the node alone, without the rest of the command line; it starts quicker."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path

from veilwalk.core.errors import VeilwalkError
from veilwalk.node.peer import run_node

try:
    run_node(Path(sys.argv[1]))
except VeilwalkError as error:
    print(f"veilwalk: {error}", file=sys.stderr)
    sys.exit(error.exit_code)
except Exception:  # noqa: BLE001  whatever is left is our own fault, and its traceback is for us
    traceback.print_exc()
    sys.exit(70)
