"""What a node keeps on its disk: messages, tables, spare copies, and how it mends them."""

from veilwalk.node.spool._claims import add_claim, claims, forget_claims, undo_end, undone_ends
from veilwalk.node.spool._disk import MESSAGES, Disk, FolderDisk, check_storage, open_read_only
from veilwalk.node.spool._failpoints import arm, hit
from veilwalk.node.spool._handover import Claim, Discard, Outgoing, Progress, Taken, Verdict
from veilwalk.node.spool._register import Register
from veilwalk.node.spool._spares import Spares
from veilwalk.node.spool._spool import DamageError, Spool
from veilwalk.node.spool._tables import ASKED, ENDS, STEP, Row, SeenWalk, Stored, StoredModel, of_lane

__all__ = [
    "ASKED",
    "ENDS",
    "MESSAGES",
    "STEP",
    "Claim",
    "DamageError",
    "Discard",
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
    "add_claim",
    "arm",
    "check_storage",
    "claims",
    "forget_claims",
    "hit",
    "of_lane",
    "open_read_only",
    "undo_end",
    "undone_ends",
]
