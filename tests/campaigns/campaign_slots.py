"""What the slots of a run's messages give away, judged by somebody who has everybody's keys.

Reads the messages that watched nodes kept (``made.bin``) by the description of the format alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from scipy import stats

from tests.helpers.sealing import SLOTS, read_slot, split_slots
from veilwalk.node.members import Manifest, Roster, load_node_keys, load_root_public_key
from veilwalk.node.sealing import Suite

# Messages that are opened: each slot is tried with every key.
_OPENED = 120


def front_bytes(suite: Suite, recipients: int) -> int:
    """Return the length of the clear bytes, the shared key and all slots."""
    return SLOTS + recipients * (80 if suite is Suite.X25519 else 1201)


def slot_chances(folder: Path, names: Sequence[str]) -> tuple[float, float]:
    """Return how likely chance gives these places to the recipients, and these first bytes to the slots."""
    root = load_root_public_key(folder / "root" / "root.pub")
    manifest = Manifest.load(folder / "manifest.json", root)
    roster = Roster.read_signed(folder / "roster.json", root)
    context = roster.seal_context(manifest)
    keys = [load_node_keys(folder / name / "keys").kem[context.epoch] for name in names]
    places = np.zeros((len(names), manifest.recipients))
    hints = np.zeros(256)
    for number, message in enumerate(_messages(folder, names, context.message_bytes)):
        for place, slot in enumerate(split_slots(context, message)):
            hints[slot[0]] += 1
            if number >= _OPENED:
                continue
            for member, key in enumerate(keys):
                if read_slot(context, key, message, slot) is not None:
                    places[member, place] += 1
                    break
    met = places[places.sum(axis=1) > 0]
    return float(stats.chi2_contingency(met).pvalue), float(stats.chisquare(hints).pvalue)


def _messages(folder: Path, names: Sequence[str], size: int) -> list[bytes]:
    """Return what all nodes made, in turns, so that the first are of many makers."""
    kept = [(folder / name / "made.bin").read_bytes() for name in names if (folder / name / "made.bin").exists()]
    found = [(at, data[at : at + size]) for data in kept for at in range(0, len(data) - size + 1, size)]
    return [message for _, message in sorted(found, key=lambda entry: entry[0])]
