"""The disk of a node: messages, tables, models."""

from typing import TYPE_CHECKING

from veilwalk.core.rooms import open_room

if TYPE_CHECKING:
    from veilwalk.node.spool._disk import MESSAGES, FolderDisk, check_storage, open_read_only
    from veilwalk.node.spool._failpoints import arm, hit
    from veilwalk.node.spool._register import Register
    from veilwalk.node.spool._spool import DamageError, Spool
    from veilwalk.node.spool._tables import (
        KEYS_REMEMBERED,
        STEP,
        Row,
        SeenWalk,
        SignedEnd,
        Stored,
        StoredModel,
        Taken,
        UpdateOutcome,
        Verdict,
        of_lane,
    )
else:
    __getattr__, __all__ = open_room(__name__)
