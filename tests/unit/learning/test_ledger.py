"""What training costs."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal

import numpy as np
import pytest

from veilwalk.core.errors import InvalidParameterError
from veilwalk.graphs import distances, random_regular
from veilwalk.learning import (
    CostModel,
    Stopping,
    TrainingTrace,
    central_trace,
    fedavg_trace,
    gossip_trace,
    make_ledger,
    plain_trace,
    sealed_bytes,
    sparse_gossip_trace,
)

GRAPH = random_regular(40, 3, seed=3)
COST = CostModel(bandwidth_bytes_per_s=1000, latency_s=0.5, compute_s=2.0, dwell_s=0.0)


def legs(hops: list[int], models: list[int], recipients: int = 1) -> TrainingTrace:
    """A private trace with these legs."""
    size = len(hops)
    zeros = np.zeros(size, dtype=np.int64)
    clock = np.array(
        [sum(h for h, m in zip(hops[: i + 1], models, strict=False) if m == models[i]) for i in range(size)]
    )
    return TrainingTrace(
        algorithm="private-walk",
        n_nodes=4,
        n_models=max(models) + 1,
        node=zeros,
        model=np.array(models),
        hops=np.array(hops),
        clock=clock,
        source=zeros.copy(),
        last_hop=zeros.copy(),
        return_time=zeros.copy(),
        recipients=recipients,
    )


def test_a_private_walk_pays_for_every_hop() -> None:
    """Hops, bytes and seconds, by hand."""
    found = make_ledger(legs([3, 5], [0, 0]), COST, params_bytes=100)
    size = sealed_bytes(100)
    assert found.hops.tolist() == [0, 3, 8]
    assert found.sent_bytes.tolist() == [0, 3 * size, 8 * size]
    assert found.seconds == pytest.approx([0, 3 * (0.5 + size / 1000) + 2, 8 * (0.5 + size / 1000) + 4])


def test_a_sealed_message_dwells_at_every_node() -> None:
    """And an update is made meanwhile; plain messages do not wait."""
    dwelling = replace(COST, dwell_s=3.0)
    size = sealed_bytes(100)
    sealed = make_ledger(legs([3, 5], [0, 0]), dwelling, params_bytes=100)
    assert sealed.seconds == pytest.approx([0, 3 * (3.5 + size / 1000), 8 * (3.5 + size / 1000)])
    assert sealed.model_seconds(COST, 1) == pytest.approx(3 * (0.5 + size / 1000) + 2)
    plain = make_ledger(plain_trace(GRAPH, updates=10, seed=1), dwelling, params_bytes=100)
    assert plain.seconds[-1] == pytest.approx(10 * (0.5 + 0.1 + 2.0))
    assert (CostModel().settled_dwell_s, CostModel(compute_s=2.0).settled_dwell_s) == (0.05, 3.0)


def test_walks_that_meet_wait_for_the_last_one_and_pay_for_the_flood() -> None:
    """Two walks that meet after every update, by hand: 120 links of 40 nodes carry each end, but one a node."""
    trace = legs([4, 9, 2, 3], [0, 1, 0, 1]).add_meetings(GRAPH, 1)
    flood, depth = 2 * (2 * 60 - 39), trace.meet_sends[1]
    assert depth == distances(GRAPH).max()
    assert trace.clock.tolist() == [4, 9, 9 + depth + 2, 9 + depth + 3]
    priced = make_ledger(trace, COST, params_bytes=100)
    assert priced.hops.tolist() == [0, 4, 13 + flood, 15 + flood, 18 + flood]
    hop_s, sending_s = 0.5 + sealed_bytes(100) / 1000, sealed_bytes(100) / 1000
    met = 9 * hop_s + 2 + depth * hop_s + 2 * 3 * sending_s
    assert priced.seconds[1:] == pytest.approx([4 * hop_s + 2, 9 * hop_s + 2, met + 2 * hop_s + 2, met + 3 * hop_s + 2])


def test_sparse_gossip_and_fedavg_pay_for_what_they_send() -> None:
    """Push: a message a node and round. Pairs: one for each node with a partner. FedAvg: two for each node asked."""
    push = sparse_gossip_trace(GRAPH, rounds=3, seed=1, push=True)
    priced = make_ledger(push, COST, params_bytes=100)
    assert (priced.hops[-1], priced.message_bytes) == (120, 100)
    assert priced.seconds[-1] == pytest.approx(3 * (2.0 + 0.5 + 0.1))
    pairs = sparse_gossip_trace(GRAPH, rounds=3, seed=1, push=False)
    assert pairs.hops[:40].sum() % 2 == 0
    assert 30 <= pairs.hops[:40].sum() <= 40
    server = make_ledger(fedavg_trace(GRAPH, updates=10, seed=1), COST, params_bytes=100)
    assert server.hops[-1] == 2 * 12
    assert server.seconds[-1] == pytest.approx(3 * (2.0 + 2 * 0.5 + 2 * 0.1))


def test_a_slot_for_each_recipient_is_paid_for() -> None:
    """Sixteen slots of 1.2 kB with every hop, one of them in every message."""
    found = make_ledger(legs([3, 5], [0, 0], recipients=16), COST, params_bytes=100)
    slots = 15 * (1 + 1120 + 64 + 16)
    assert found.message_bytes == sealed_bytes(100) + slots
    assert found.sent_bytes.tolist() == [0, 3 * found.message_bytes, 8 * found.message_bytes]


def test_tokens_share_the_time_and_not_the_bytes() -> None:
    """Two tokens with the same legs: twice the hops of one, in the time of one."""
    one = make_ledger(legs([4, 4], [0, 0]), COST, params_bytes=100)
    two = make_ledger(legs([4, 4, 4, 4], [0, 1, 0, 1]), COST, params_bytes=100)
    assert two.hops[-1] == 2 * one.hops[-1]
    assert two.seconds[-1] == pytest.approx(one.seconds[-1])


def test_gossip_pays_for_every_directed_edge_each_round() -> None:
    """40 nodes of degree 3: 120 messages a round, sent side by side, three after another at each node."""
    found = make_ledger(gossip_trace(GRAPH, rounds=2), COST, params_bytes=100)
    assert found.hops[-1] == 240
    assert found.message_bytes == 100
    assert found.seconds[-1] == pytest.approx(2 * (2.0 + 0.5 + 3 * 0.1))


def test_plain_and_central() -> None:
    """One bare message an update, or none."""
    plain = make_ledger(plain_trace(GRAPH, updates=10, seed=1), COST, params_bytes=100)
    assert plain.sent_bytes[-1] == 1000
    assert plain.seconds[-1] == pytest.approx(10 * (0.5 + 0.1 + 2.0))
    central = make_ledger(central_trace(updates=10), COST, params_bytes=100)
    assert central.sent_bytes[-1] == 0
    assert central.seconds[-1] == pytest.approx(20.0)


@pytest.mark.parametrize("suite", ["x25519", "hybrid"])
@pytest.mark.parametrize("size", [0, 1, 2600, 16_384, 16_385, 31_400, 177_704, 262_144, 262_145, 4_800_000, 44_700_000])
def test_the_modelled_message_is_the_one_a_node_sends(size: int, suite: Literal["x25519", "hybrid"]) -> None:
    """The real envelope has exactly this length, with either key exchange."""
    from veilwalk.node.sealing import SealContext, Suite, bucket_for

    context = SealContext(run_id=bytes(16), suite=Suite[suite.upper()], epoch=0, bucket_bytes=bucket_for(size))
    assert sealed_bytes(size, suite=suite) == context.message_bytes


def test_the_length_of_a_small_model_by_hand() -> None:
    """5 clear bytes, 32 of a key or of hints, a slot, the header with its tag, the size class and one tag."""
    around = 5 + 32 + (128 + 16) + (2688 + 16)
    assert sealed_bytes(2600) == around + (1 + 1120 + 64 + 16)
    assert sealed_bytes(2600, suite="x25519") == around + (64 + 16)


def test_a_budget_cuts_before_it_is_exceeded() -> None:
    """Exactly what fits, by hops and by bytes."""
    ledger = make_ledger(legs([3, 5, 2], [0, 0, 0]), COST, params_bytes=100)
    assert Stopping(max_hops=8).budget(ledger)[0] == 2
    assert Stopping(max_hops=7).budget(ledger)[0] == 1
    assert Stopping(max_bytes=10 * ledger.message_bytes - 1).budget(ledger)[0] == 2
    assert Stopping(max_hops=2).budget(ledger)[0] == 0


@pytest.mark.parametrize(
    ("name", "value"), [("bandwidth_bytes_per_s", 0.0), ("latency_s", -1.0), ("compute_s", math.nan)]
)
def test_impossible_costs_are_refused_by_name(name: str, value: float) -> None:
    """One line with the parameter in it."""
    with pytest.raises(InvalidParameterError, match=name.split("_", maxsplit=1)[0]):
        CostModel(**{name: value})
