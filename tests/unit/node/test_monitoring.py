"""The shipped alerts and dashboard, before a real Prometheus that scrapes a real node."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from veilwalk.core.walk import SIMPLE
from veilwalk.node import RunRules
from veilwalk.node.cluster import free_ports
from veilwalk.node.peer._observe import HealthWatch, MetricsServer

DEPLOY = Path(__file__).parents[3] / "examples" / "deploy"
PROMETHEUS, PROMTOOL = shutil.which("prometheus"), shutil.which("promtool")

pytestmark = pytest.mark.skipif(
    PROMETHEUS is None or PROMTOOL is None, reason="no prometheus on this machine: alerts are not tried"
)


def promtool(*words: str) -> str:
    assert PROMTOOL is not None
    done = subprocess.run([PROMTOOL, *words], cwd=DEPLOY, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_rules_load_and_fire_when_they_should() -> None:
    """Prometheus' own tests of each alert: silent a minute before, firing then, and said in its words."""
    assert "7 rules found" in promtool("check", "config", "prometheus.yml")
    assert "SUCCESS" in promtool("test", "rules", "veilwalk-alerts-test.yml")
    shipped = set(re.findall(r"alert: (\w+)", (DEPLOY / "veilwalk-alerts.yml").read_text()))
    tried = set(re.findall(r"alertname: (\w+)", (DEPLOY / "veilwalk-alerts-test.yml").read_text()))
    assert shipped == tried


def test_a_rule_that_is_never_true_is_caught(tmp_path: Path) -> None:
    """The tests above can fail: a disk alert on another name does not fire."""
    shutil.copytree(DEPLOY, tmp_path, dirs_exist_ok=True)
    rules = tmp_path / "veilwalk-alerts.yml"
    rules.write_text(rules.read_text().replace("veilwalk_disk_free_bytes <", "veilwalk_disk_bytes <"))
    assert PROMTOOL is not None
    done = subprocess.run(
        [PROMTOOL, "test", "rules", "veilwalk-alerts-test.yml"],
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode != 0
    assert "VeilwalkDiskNearlyFull" in done.stdout + done.stderr


@contextmanager
def watching(folder: Path, metrics_port: int) -> Iterator[int]:
    """A Prometheus as shipped, but every second and with no patience; its port."""
    (port,) = free_ports(1)
    config = (DEPLOY / "prometheus.yml").read_text().replace("30s", "1s").replace("9100", str(metrics_port))
    (folder / "prometheus.yml").write_text(config)
    rules = (DEPLOY / "veilwalk-alerts.yml").read_text()
    (folder / "veilwalk-alerts.yml").write_text(re.sub(r"for: \d+m", "for: 0s", rules))
    assert PROMETHEUS is not None
    flags = {
        "config.file": folder / "prometheus.yml",
        "storage.tsdb.path": folder / "series",
        "web.listen-address": f"127.0.0.1:{port}",
    }
    with (folder / "log").open("w") as log:
        process = subprocess.Popen([PROMETHEUS, *(f"--{name}={value}" for name, value in flags.items())], stderr=log)
        try:
            yield port
        finally:
            process.terminate()
            process.wait(30)


def asked(port: int, what: str, **query: str) -> Any:
    address = f"http://127.0.0.1:{port}/api/v1/{what}?{urllib.parse.urlencode(query)}"
    try:
        with urllib.request.urlopen(address, timeout=10) as answer:
            return json.load(answer)["data"]
    except urllib.error.HTTPError as error:
        # It answers so while it starts.
        if error.code != 503:
            pytest.fail(f"{query}: {error.read().decode()}")
    except OSError:
        pass
    return None


async def firing(port: int) -> set[str]:
    alerts = await asyncio.to_thread(asked, port, "alerts")
    return {one["labels"]["alertname"] for one in (alerts or {"alerts": []})["alerts"] if one["state"] == "firing"}


async def answered(port: int, question: str) -> list[Any]:
    """Return the answer, when there is one: a rate needs two scrapes."""
    query = question.replace("$__rate_interval", "10s").replace("$instance", ".*")
    async with asyncio.timeout(30):
        while not (found := await asyncio.to_thread(asked, port, "query", query=query))["result"]:
            await asyncio.sleep(0.3)
    result: list[Any] = found["result"]
    return result


def test_a_node_without_neighbours_raises_the_alarm(network: Callable[..., Any], tmp_path: Path) -> None:
    """Scraped for real: it is unwell and its roster of an hour near its end; every panel's question is understood."""
    panels = json.loads((DEPLOY / "veilwalk-dashboard.json").read_text())["panels"]
    questions = {panel["title"]: panel["targets"][0]["expr"] for panel in panels}

    async def main() -> tuple[set[str], dict[str, list[Any]]]:
        net = network(4, rules=RunRules(walk=SIMPLE, updates=5, late_hops=1e9))
        await net.start("n0")
        log, watch = net.parts["n0"].log, HealthWatch(net.nodes["n0"], net.folder)
        await watch.beat()
        process: Any = SimpleNamespace(log=log, watch=watch, refused="")
        server = MetricsServer(process)
        (port,) = free_ports(1)
        await server.start("127.0.0.1", port)
        try:
            with watching(tmp_path, port) as prometheus:
                expected = {"VeilwalkNodeUnwell", "VeilwalkRosterNearExpiry"}
                async with asyncio.timeout(60):
                    while not expected <= (fired := await firing(prometheus)):
                        await asyncio.sleep(0.3)
                answers = {title: await answered(prometheus, question) for title, question in questions.items()}
        finally:
            server.close()
            await net.stop()
        return fired, answers

    fired, answers = asyncio.run(main())
    assert fired == {"VeilwalkNodeUnwell", "VeilwalkRosterNearExpiry"}
    for title, answer in answers.items():
        assert len(answer) == 1, title
