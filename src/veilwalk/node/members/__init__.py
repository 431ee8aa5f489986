"""Who takes part in a run and by which rules: keys, cards, roster, manifest, and models as the manifest lists them."""

from veilwalk.node.members._drafts import (
    changed_roster,
    edges_of_graph,
    first_roster,
    parse_run_id,
    read_cards,
    rotated_roster,
)
from veilwalk.node.members._encoding import decode_params, encode_params
from veilwalk.node.members._keyfile import make_private_directory, read_password
from veilwalk.node.members._keys import (
    NodeKeys,
    delete_old_keys,
    load_node_keys,
    load_root_key,
    load_root_public_key,
    new_node_keys,
    new_root_key,
    rotate_node_keys,
)
from veilwalk.node.members._manifest import Manifest, array_specs, load_manifest, sign_manifest
from veilwalk.node.members._member import Member, spki_sha256
from veilwalk.node.members._roster import (
    Roster,
    check_succession,
    check_time,
    load_roster,
    read_roster_draft,
    read_signed_roster,
    sign_roster,
)
from veilwalk.node.members._rules import NODE_WALKS, RunRules, new_run_walk, node_walk
from veilwalk.node.members._signed import canonical_json, parse_canonical, read_bounded, signature_path

__all__ = [
    "NODE_WALKS",
    "Manifest",
    "Member",
    "NodeKeys",
    "Roster",
    "RunRules",
    "array_specs",
    "canonical_json",
    "changed_roster",
    "check_succession",
    "check_time",
    "decode_params",
    "delete_old_keys",
    "edges_of_graph",
    "encode_params",
    "first_roster",
    "load_manifest",
    "load_node_keys",
    "load_root_key",
    "load_root_public_key",
    "load_roster",
    "make_private_directory",
    "new_node_keys",
    "new_root_key",
    "new_run_walk",
    "node_walk",
    "parse_canonical",
    "parse_run_id",
    "read_bounded",
    "read_cards",
    "read_password",
    "read_roster_draft",
    "read_signed_roster",
    "rotate_node_keys",
    "rotated_roster",
    "sign_manifest",
    "sign_roster",
    "signature_path",
    "spki_sha256",
]
