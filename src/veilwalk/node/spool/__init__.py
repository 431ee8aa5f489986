"""What a node keeps on its disk: messages, tables, models."""

from veilwalk.node.spool._disk import MESSAGES, Disk, FolderDisk, check_storage, open_read_only
from veilwalk.node.spool._failpoints import arm, hit
from veilwalk.node.spool._handover import Discard, Outgoing, SignedEnd, Taken, UpdateOutcome, Verdict
from veilwalk.node.spool._register import Register
from veilwalk.node.spool._spool import DamageError, Spool
from veilwalk.node.spool._tables import KEY_BYTES, KEYS_REMEMBERED, STEP, Row, SeenWalk, Stored, StoredModel, of_lane

__all__ = [
    "KEYS_REMEMBERED",
    "KEY_BYTES",
    "MESSAGES",
    "STEP",
    "DamageError",
    "Discard",
    "Disk",
    "FolderDisk",
    "Outgoing",
    "Register",
    "Row",
    "SeenWalk",
    "SignedEnd",
    "Spool",
    "Stored",
    "StoredModel",
    "Taken",
    "UpdateOutcome",
    "Verdict",
    "arm",
    "check_storage",
    "hit",
    "of_lane",
    "open_read_only",
]
