"""Sealed messages: the envelope with its slots and header, the body, the keys that open them."""

from typing import TYPE_CHECKING

from veilwalk.core.rooms import open_room

if TYPE_CHECKING:
    from veilwalk.node.sealing._body import Bytes, bucket_code, bucket_for
    from veilwalk.node.sealing._context import DIGEST_BYTES, RUN_ID_BYTES, SECRET_BYTES, SealContext, check_recipients
    from veilwalk.node.sealing._envelope import Header, OpenedHeader, Opener, open_body, seal
    from veilwalk.node.sealing._kem import (
        KemPrivateKey,
        Suite,
        check_kem_public_key,
        kem_private_key,
        kem_public_bytes,
        need_length,
        new_kem_secret,
        open_for_member,
        seal_for_member,
    )
else:
    __getattr__, __all__ = open_room(__name__)
