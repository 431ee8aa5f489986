"""What every message of a run and epoch shares."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from veilwalk.core import validate
from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.geometry import MessageGeometry
from veilwalk.node.sealing._body import bucket_code
from veilwalk.node.sealing._kem import Suite, need_length

WIRE_VERSION = 3
RUN_ID_BYTES = 16
DIGEST_BYTES = 32
SECRET_BYTES = 32
#: Two bytes of the context count the slots.
MAX_RECIPIENTS = 2**16 - 1

_LABEL = b"veilwalk/3"


@dataclass(frozen=True, kw_only=True)
class SealContext:
    """What every message of a run and epoch shares; a message sealed in one context opens in no other.

    ``secret`` is 32 bytes that only members know in this epoch, or nothing: every key of a slot hangs on it.
    """

    run_id: bytes
    suite: Suite
    epoch: int
    bucket_bytes: int
    recipients: int = 1
    secret: bytes = field(default=b"", repr=False)

    def __post_init__(self) -> None:
        need_length(RUN_ID_BYTES, run_id=self.run_id)
        validate.integer(epoch=self.epoch, bucket_bytes=self.bucket_bytes)
        validate.at_least(0, epoch=self.epoch)
        bucket_code(self.bucket_bytes)
        check_recipients(self.recipients)
        if self.secret:
            need_length(SECRET_BYTES, secret=self.secret)

    @cached_property
    def clear(self) -> bytes:
        """The clear part: version, suite, epoch mod 256, bucket code."""
        return bytes([WIRE_VERSION, self.suite, self.epoch % 256]) + bucket_code(self.bucket_bytes).to_bytes(2, "big")

    @cached_property
    def info(self) -> bytes:
        """What is bound into every slot: the clear part, the whole epoch, the number of slots, the run.

        No version of the roster: a message outlives those that come while it walks.
        """
        return _LABEL + self.clear + self.epoch.to_bytes(8, "big") + self.recipients.to_bytes(2, "big") + self.run_id

    @cached_property
    def geometry(self) -> MessageGeometry:
        """The lengths of every message of the run."""
        suite = self.suite.geometry_name
        return MessageGeometry(suite=suite, bucket_bytes=self.bucket_bytes, recipients=self.recipients)

    @cached_property
    def message_bytes(self) -> int:
        """Length of every message of the run."""
        return self.geometry.message_bytes


def check_recipients(recipients: int) -> None:
    """Refuse a number of slots that no message has."""
    validate.integer(recipients=recipients)
    validate.at_least(1, recipients=recipients)
    if recipients > MAX_RECIPIENTS:
        raise InvalidParameterError("recipients", recipients, f"at most {MAX_RECIPIENTS}, what a frame has room for")
