"""What the slots of a run's messages give away, judged by somebody who has everybody's keys.

Reads the messages that watched nodes kept (``made.bin``) by the description of the format alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from cryptography.exceptions import InvalidTag
from scipy import stats

from veilwalk.node.members import Manifest, Roster, load_node_keys, load_root_public_key
from veilwalk.node.sealing import Suite

# Messages that are opened: each slot is tried with every key.
_OPENED = 120
_BOX = 64 + 16


def front_bytes(suite: Suite, recipients: int) -> int:
    """Return the length of the clear bytes, the key of the hints and all slots."""
    slot = suite.enc_bytes + _BOX
    return 4 + slot if recipients == 1 else 4 + 32 + recipients * (1 + slot)


def slot_chances(folder: Path, names: Sequence[str]) -> tuple[float, float]:
    """Return how likely chance gives these places to the recipients, and these hints to the slots."""
    root = load_root_public_key(folder / "root" / "root.pub")
    manifest = Manifest.load(folder / "manifest.json", root)
    roster = Roster.read_signed(folder / "roster.json", root)
    context = roster.seal_context(manifest)
    keys = [load_node_keys(folder / name / "keys").kem[context.epoch].whole for name in names]
    places = np.zeros((len(names), manifest.recipients))
    hints = np.zeros(256)
    size = 1 + manifest.suite.enc_bytes + _BOX
    for number, message in enumerate(_messages(folder, names, context.message_bytes)):
        for place in range(manifest.recipients):
            slot = message[36 + place * size : 36 + (place + 1) * size]
            hints[slot[0]] += 1
            if number >= _OPENED:
                continue
            for member, key in enumerate(keys):
                try:
                    manifest.suite.hpke.decrypt(slot[1:], key, info=context.info)
                except InvalidTag:
                    continue
                places[member, place] += 1
                break
    met = places[places.sum(axis=1) > 0]
    return float(stats.chi2_contingency(met).pvalue), float(stats.chisquare(hints).pvalue)


def _messages(folder: Path, names: Sequence[str], size: int) -> list[bytes]:
    """Return what all nodes made, in turns, so that the first are of many makers."""
    kept = [(folder / name / "made.bin").read_bytes() for name in names if (folder / name / "made.bin").exists()]
    found = [(at, data[at : at + size]) for data in kept for at in range(0, len(data) - size + 1, size)]
    return [message for _, message in sorted(found, key=lambda entry: entry[0])]
