"""What came out of a cluster, beside what was predicted."""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path

from veilwalk.core.errors import SpoolError
from veilwalk.core.geometry import MessageGeometry
from veilwalk.core.records import Record
from veilwalk.node.cluster._files import node_ids
from veilwalk.node.cluster._processes import ClusterStatus
from veilwalk.node.cluster._settings import ClusterSetup
from veilwalk.node.members import Manifest, decode_params, load_manifest, load_root_public_key
from veilwalk.node.peer import load_config, node_status


def cluster_record(setup: ClusterSetup, out: Path, status: ClusterStatus, *, seconds: float) -> Record:
    """Return what came out, beside what was predicted."""
    from veilwalk.learning import choose_model

    scenario = setup.scenario
    manifest = manifest_in(out)
    final = node_status(load_config(out / node_ids(scenario.graph.n_nodes)[0] / "node.toml").state, with_models=True)
    if not final.models:
        raise SpoolError(f"{out}: no node has a finished model on its disk")
    models = [decode_params(manifest, one) for one in final.models]
    # As a node chooses, who may have no test set.
    chosen, params = choose_model(models, setup.evaluate if manifest.test_digest else None)
    scores = setup.evaluate(params)
    hops, updates = status.total("hops"), status.total("updates")
    price = scenario.scheme.price
    size = message_bytes(manifest)
    names = (
        *("farewells", "duplicates", "rerouted", "created", "forks", "merged", "retired", "discarded", "refused"),
        *("damaged", "set_aside", "unbelieved", "learner_failures", "out_of_time", "dwell_overruns"),
    )
    return Record(
        kind="cluster",
        seed=setup.settings.seed,
        params=asdict(setup.settings),
        result={
            "nodes": scenario.graph.n_nodes,
            "updates": updates,
            "walks": setup.settings.walks,
            "chosen": chosen,
            "ended_by": "updates" if final.iteration >= setup.settings.updates else "target accuracy",
            "accuracy": scores.get("accuracy"),
            "loss_nats": scores["loss"],
            "hops": hops,
            "hops_per_update": hops / updates,
            "hops_per_update_predicted": price.hops,
            "hops_per_update_prediction": price.kind,
            # A leg is nearly geometric, so its spread is about its mean.
            "hops_per_update_expected_error": price.hops / math.sqrt(updates),
            "message_bytes": size,
            "bytes_sent": (hops + status.total("farewells")) * size,
            "seconds": seconds,
            "counts": {name: status.total(name) for name in names},
        },
    )


def manifest_in(out: Path) -> Manifest:
    """Return the signed manifest of the cluster in ``out``."""
    return load_manifest(out / "manifest.json", load_root_public_key(out / "root" / "root.pub"))


def message_bytes(manifest: Manifest) -> int:
    """Return the length of every message of a run."""
    return MessageGeometry(
        key_bytes=manifest.suite.enc_bytes, bucket_bytes=manifest.bucket_bytes, recipients=manifest.recipients
    ).message_bytes
