"""Who takes part in a run and by which rules: keys, cards, roster, manifest, and models as the manifest lists them."""

from typing import TYPE_CHECKING

from veilwalk.core.rooms import open_room

if TYPE_CHECKING:
    from veilwalk.node.members._deal import Deal, deal_again, deal_path, deal_roster
    from veilwalk.node.members._drafts import (
        changed_roster,
        describe_changes,
        edges_after,
        edges_of_graph,
        first_roster,
        parse_network,
        read_cards,
    )
    from veilwalk.node.members._encoding import decode_params, encode_params, params_distance, params_norm
    from veilwalk.node.members._keys import (
        KeyRing,
        NodeKeys,
        check_password,
        load_node_keys,
        load_root_key,
        load_root_public_key,
        make_private_directory,
        new_node_keys,
        new_root_key,
        read_password,
        rotate_node_keys,
    )
    from veilwalk.node.members._manifest import (
        MAX_LANES,
        SIGNATURE_BYTES,
        ArraySpec,
        LawRule,
        Manifest,
        RunFigures,
        RunRules,
        array_specs,
        final_tag,
        node_walk,
    )
    from veilwalk.node.members._roster import MOST_EPOCHS, Member, Roster, read_card, spki_sha256
    from veilwalk.node.members._signed import (
        canonical_json,
        parse_canonical,
        read_bounded,
        require_unsigned,
        signature_path,
    )
else:
    __getattr__, __all__ = open_room(__name__)
