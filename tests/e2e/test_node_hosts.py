"""Several hosts: network namespaces joined by veth pairs, two nodes in each, one host cut off for a while.

Needs the right to make namespaces; where the machine does not give it, this is skipped and says so.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.campaigns.chaos_checker import check, ends
from tests.campaigns.chaos_plan import tally_plan
from tests.helpers.hosts import three_hosts, within

from veilwalk.graphs import parse_graph_spec
from veilwalk.node import Limits, prepare_cluster
from veilwalk.node.cluster import node_ids

ROOT = Path(__file__).parents[2]
HOSTS = 3
UPDATES = 80


@pytest.fixture
def hosts() -> Iterator[list[str]]:
    with three_hosts() as spaces:
        yield spaces


def test_a_run_over_three_hosts_survives_a_partition(hosts: list[str], tmp_path: Path) -> None:
    """One host is cut off and comes back; the model is finished with every update once, on all of them."""
    names = node_ids(2 * HOSTS)
    addresses = [f"10.77.0.{index // 2 + 1}:{7100 + index}" for index in range(len(names))]
    limits = Limits(retry_s=0.2, connect_s=1.0, answer_s=1.0, ping_s=0.5)
    plan = tally_plan(parse_graph_spec("rrg:6:3:seed=1"), updates=UPDATES, limits=limits)
    configs = prepare_cluster(tmp_path, plan, addresses=addresses)
    processes = [
        subprocess.Popen(
            ["ip", "netns", "exec", hosts[index // 2], sys.executable, "-m", "veilwalk.node", str(path)],
            env=os.environ | {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "OPENBLAS_NUM_THREADS": "1"},
            cwd=ROOT,
            stderr=subprocess.DEVNULL,
        )
        for index, path in enumerate(configs)
    ]
    try:
        wait_for(tmp_path, names, lambda found: found.updates >= 5)
        within(hosts[0], "ip", "link", "set", "eth0", "down")
        time.sleep(2)
        within(hosts[0], "ip", "link", "set", "eth0", "up")
        wait_for(tmp_path, names, ends())
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(20)
    found = check(tmp_path, names, may_fork=True)
    assert found.faults == []
    assert (found.updates, found.lost, found.doubled) == (UPDATES, 0, 0)


def wait_for(folder: Path, names: list[str], done: object) -> None:
    end = time.monotonic() + 90
    while time.monotonic() < end:
        if done(check(folder, names, may_fork=True)):  # type: ignore[operator]
            return
        time.sleep(0.2)
    raise AssertionError(f"not in time: {check(folder, names, may_fork=True)}")
