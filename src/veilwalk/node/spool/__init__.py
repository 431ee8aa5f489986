"""What a node keeps on its disk: messages, tables, spare copies, and how it mends them."""

from veilwalk.node.spool._disk import MESSAGES, Disk, FolderDisk, open_read_only
from veilwalk.node.spool._failpoints import arm, hit
from veilwalk.node.spool._handover import Outgoing, Progress, Taken, Verdict
from veilwalk.node.spool._register import Register
from veilwalk.node.spool._spares import Spares
from veilwalk.node.spool._spool import DamageError, Spool
from veilwalk.node.spool._tables import Row, SeenWalk, Stored, StoredModel

__all__ = [
    "MESSAGES",
    "DamageError",
    "Disk",
    "FolderDisk",
    "Outgoing",
    "Progress",
    "Register",
    "Row",
    "SeenWalk",
    "Spares",
    "Spool",
    "Stored",
    "StoredModel",
    "Taken",
    "Verdict",
    "arm",
    "hit",
    "open_read_only",
]
