"""The how-to pages of operations, followed on three hosts: deploy, join, leave, lose, renew, rotate, upgrade, restore.

Every command of the two pages is run as it stands there, by the one who is to run it; at the end none is left over.
Needs the right to make network namespaces; where the machine does not give it, this is skipped and says so.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.helpers.hosts import three_hosts

from veilwalk.learning import load_data, load_model
from veilwalk.node import NodeStatus, load_config, node_status
from veilwalk.node.members import Roster

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "docs" / "how-to" / f"{name}.md" for name in ("deploy-on-three-machines", "manage-members")]
OVERLAY_PAGE = ROOT / "docs" / "how-to" / "run-a-secret-overlay.md"
OVERLAY_KEYS = "veilwalk keys new --id clinic-a1 --address a.example.org:7101 --suite x25519 --password-file password"
NAMES = ("a.example.org", "b.example.org", "c.example.org")
# All that is not the pages' own words: a walk that was lost with a machine is made again in seconds, not in a minute,
# and six nodes leave a small machine time for the commands.
HURRY = {"veilwalk node manifest": " --away 0 --dwell 0.05"}
SHIM = f"#!/bin/sh\nexec {sys.executable} -c 'from veilwalk.cli import main; main()' \"$@\"\n"


def written_commands(pages: Iterable[Path]) -> dict[str, int]:
    """Every command of the pages, by its text."""
    found: dict[str, int] = {}
    for page in pages:
        outside = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
        for line in re.findall(r"^    (\S.*)$", outside, re.MULTILINE):
            if " = " not in line:
                found[line] = 0
    return found


class Followers:
    """Three members with two nodes each, and the root's keeper, each in a folder of its own."""

    def __init__(self, folder: Path, spaces: list[str]) -> None:
        self.commands = written_commands([*PAGES, OVERLAY_PAGE])
        self._spaces = dict(zip("abc", spaces, strict=True))
        self._folder = folder
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        (folder / "bin").mkdir()
        (folder / "bin" / "veilwalk").write_text(SHIM)
        (folder / "bin" / "veilwalk").chmod(0o755)
        for name in (*"abc", "keeper"):
            self.of(name).mkdir()
        (self.of("keeper") / "cards").mkdir()

    def of(self, who: str) -> Path:
        """The folder of somebody."""
        return self._folder / who

    def config(self, node: str) -> Path:
        """The settings of a node."""
        return self.of(node[-2]) / f"{node}.toml"

    def follow(self, who: str, command: str, *, node: str = "", code: int = 0) -> str:
        """Run a command of a page where ``who`` would; ``node`` is whose name stands where the page has an example."""
        assert command in self.commands, f"no page says: {command}"
        self.commands[command] += 1
        more = "".join(words for start, words in HURRY.items() if command.startswith(start))
        return self._run(who, self._meant(command, node) + more, code)

    def start(self, node: str) -> None:
        """Run a node, as the page says, until it is up."""
        command = "veilwalk node run --config clinic-a1.toml"
        self.commands[command] += 1
        where = self.of(node[-2])
        with (where / f"{node}.log").open("wb") as log:
            self._processes[node] = subprocess.Popen(
                ["ip", "netns", "exec", self._spaces[node[-2]], *self._meant(command, node).split()],
                cwd=where, env=self._environment(), stderr=log, stdout=log,
            )  # fmt: skip
        self.until(lambda: '"started"' in (where / f"{node}.log").read_text(), f"{node} is up")

    def stop(self, node: str, *, kill: bool = False) -> None:
        """Stop a node; or kill it."""
        process = self._processes.pop(node)
        process.kill() if kill else process.terminate()
        process.wait(30)

    def ended(self, node: str) -> int:
        """Return how a node ended by itself."""
        return self._processes.pop(node).wait(60)

    def stop_all(self) -> None:
        """Stop whoever runs."""
        at_once(self.stop, list(self._processes))

    @property
    def running(self) -> list[str]:
        """The nodes that run."""
        return sorted(self._processes)

    def status(self, node: str, *, with_versions: bool = False) -> NodeStatus:
        """What a node has done."""
        return node_status(load_config(self.config(node)).state, with_versions=with_versions)

    def until(self, done: Callable[[], Any], what: str, timeout_s: float = 240) -> None:
        """Wait for something."""
        end = time.monotonic() + timeout_s
        while not done():
            logs = {node: (self.of(node[-2]) / f"{node}.log").read_text()[-400:] for node in self.running}
            assert time.monotonic() < end, f"not in time: {what}; {json.dumps(logs, indent=1)}"
            time.sleep(0.2)

    def goes_on(self, what: str, *nodes: str) -> None:
        """Wait until the model has had another update, and these nodes have handed on messages since now."""
        before, hops = self._newest(), {node: self._hops(node) for node in nodes}
        self.until(
            lambda: self._newest() > before and all(self._hops(node) > count for node, count in hops.items()), what
        )

    def hand_out(self, *names: str) -> None:
        """The keeper sends files to all members, who put them in their place."""
        for who in "abc":
            for name in names:
                shutil.copy(self.of("keeper") / name, self.of(who) / Path(name).name)

    def send_card(self, node: str) -> None:
        """A member sends a node's card to the keeper."""
        shutil.copy(self.of(node[-2]) / "keys" / node / f"{node}.json", self.of("keeper") / "cards" / f"{node}.json")

    def sign_and_hand_out(self, version: int) -> None:
        """The keeper's steps after every draft; all running nodes follow."""
        sign = "veilwalk roster sign next.json --root root --current roster.json --manifest manifest.json"
        for command in (
            f"{sign} --password-file password",
            "mv next.json roster.json",
            "mv next.json.sig roster.json.sig",
            *(["mv next.json.deal roster.json.deal"] if (self.of("keeper") / "next.json.deal").exists() else []),
        ):
            self.follow("keeper", command)
        self.hand_out("roster.json", "roster.json.sig")
        self.all_hold("roster_version", version)

    def all_hold(self, what: str, version: int) -> None:
        """Wait until all that run hold that version."""
        self.until(
            lambda: all(getattr(self.status(node, with_versions=True), what) == version for node in self.running),
            f"{what} {version}",
        )

    def _newest(self) -> int:
        return max(self.status(node).iteration for node in self.running)

    def _hops(self, node: str) -> int:
        return self.status(node).tallies.get("hops", 0)

    def _meant(self, command: str, node: str) -> str:
        if not node:
            return command
        text = re.sub(r"clinic-[abc]\d", node, command)
        return re.sub(r"[abc]\.example\.org:\d+", f"{node[-2]}.example.org:710{node[-1]}", text)

    def _run(self, who: str, command: str, code: int) -> str:
        space = self._spaces.get(who, self._spaces["a"])
        ended = subprocess.run(
            ["ip", "netns", "exec", space, "bash", "-c", command],
            cwd=self.of(who), env=self._environment(), capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert ended.returncode == code, f"{who}: {command}\n{ended.stdout}{ended.stderr}"
        return ended.stdout

    def _environment(self) -> dict[str, str]:
        path = f"{self._folder / 'bin'}:{os.environ['PATH']}"
        return os.environ | {"PATH": path, "OPENBLAS_NUM_THREADS": "1"}


def at_once(step: Callable[[str], None], whom: Iterable[str]) -> None:
    """Let several do a step, none waiting for another."""
    with ThreadPoolExecutor() as pool:
        list(pool.map(step, whom))


@pytest.fixture
def followers(tmp_path: Path) -> Iterator[Followers]:
    with three_hosts(NAMES) as spaces:
        made = Followers(tmp_path, spaces)
        try:
            yield made
        finally:
            made.stop_all()


def settings(people: Followers, node: str, *, starts: bool = False) -> None:
    """Write a node's settings as the page has them, and its data."""
    page = PAGES[0].read_text()
    block = re.search(r"^(    keys = .*\n(?:    .*\n)+)", page, re.MULTILINE)
    assert block is not None
    text = re.sub(r"^    ", "", block[1], flags=re.MULTILINE).replace("clinic-a1", node)
    people.config(node).write_text(text + ("starts = true\n" if starts else ""))
    digits = load_data("digits").train
    rows = np.arange(ord(node[-2]) * 10 + int(node[-1]), len(digits), 37)
    np.savez(people.of(node[-2]) / f"{node}.npz", features=digits.features[rows], labels=digits.labels[rows])
    people.follow(node[-2], "chmod 600 clinic-a1.npz", node=node)


def deploy(people: Followers, *, overlay: bool = False) -> list[str]:
    """The first page; on an overlay with keys and roster of the page about overlays."""
    first = "(umask 077; head -c 24 /dev/urandom | base64 > password)"
    manifest = (
        "veilwalk node manifest --root root --roster roster.json --features 64 --classes 10 --updates 2000 "
        "--out manifest.json --password-file password"
    )
    nodes = [f"clinic-{who}{number}" for who in "abc" for number in (1, 2)]

    def make_keys(who: str) -> None:
        people.follow(who, first)
        for number in (1, 2):
            address = f"a.example.org:710{number}"
            command = f"veilwalk keys new --id clinic-a{number} --address {address} --password-file password"
            people.follow(who, OVERLAY_KEYS if overlay else command, node=f"clinic-{who}{number}")
            people.send_card(f"clinic-{who}{number}")

    at_once(make_keys, "abc")
    for command in (
        first,
        "veilwalk keys new --root --password-file password",
        f"veilwalk roster make cards/*.json {'--overlay 3' if overlay else '--graph rrg:6:3:seed=1 --out roster.json'}",
        "veilwalk roster sign roster.json --root root --password-file password",
        manifest,
    ):
        people.follow("keeper", command)
    if not overlay:
        assert "b.example.org:7101" in people.follow("keeper", "veilwalk roster edges roster.json")
    people.hand_out("root/root.pub", "roster.json", "roster.json.sig", "manifest.json", "manifest.json.sig")
    for node in nodes:
        settings(people, node, starts=node == nodes[0])
    people.follow("a", "veilwalk node check clinic-a1.toml --no-peers")
    at_once(people.start, nodes)
    people.goes_on("the run begins", *nodes)
    people.follow("b", "veilwalk roster check roster.json --root-public root.pub")
    people.follow("b", "veilwalk node check clinic-a1.toml", node="clinic-b1")
    people.follow("a", "veilwalk node status --config clinic-a1.toml")
    return nodes


def change_members(people: Followers) -> None:
    """Join, leave and lose, of the second page."""
    # Somebody joins, and trains.
    command = "veilwalk keys new --id clinic-c3 --address c.example.org:7103 --password-file password"
    people.follow("c", command)
    people.send_card("clinic-c3")
    people.follow("keeper", "veilwalk roster add cards/clinic-c3.json --to clinic-a1,clinic-b1")
    people.sign_and_hand_out(2)
    settings(people, "clinic-c3")
    people.start("clinic-c3")
    people.until(lambda: people.status("clinic-c3").tallies.get("updates", 0) > 0, "who joined has trained")

    # Somebody leaves.
    people.follow("keeper", "veilwalk roster remove clinic-b2")
    people.stop("clinic-b2")
    people.sign_and_hand_out(3)
    people.goes_on("the run goes on without who left", "clinic-a1", "clinic-b1", "clinic-c3")

    # Somebody loses its machine: new keys, an empty state, the same name.
    people.stop("clinic-b1", kill=True)
    shutil.rmtree(people.of("b") / "keys" / "clinic-b1")
    shutil.rmtree(load_config(people.config("clinic-b1")).state)
    people.follow("b", command, node="clinic-b1")
    people.send_card("clinic-b1")
    people.follow("keeper", "veilwalk roster add cards/clinic-b1.json --replace clinic-b1")
    people.sign_and_hand_out(4)
    people.start("clinic-b1")
    people.goes_on("the run goes on with who was lost", "clinic-b1")


def renew(people: Followers) -> None:
    """The roster's date and everybody's sealing keys, of the second page."""
    # The date, then the sealing keys, of all.
    people.follow("keeper", "veilwalk roster renew --days 90")
    people.sign_and_hand_out(5)

    def rotate(node: str) -> None:
        people.follow(node[-2], "veilwalk keys rotate keys/clinic-a1 --password-file password", node=node)
        people.send_card(node)

    at_once(rotate, people.running)
    people.follow("keeper", "veilwalk roster renew cards/*.json")
    people.sign_and_hand_out(6)
    people.goes_on("the run goes on with new keys", *people.running)
    assert list(Roster.read_draft(people.of("keeper") / "roster.json").key_epochs) == list(range(26))


def change_rules(people: Followers) -> None:
    """Another manifest, of the second page."""
    manifest = (
        "veilwalk node manifest --previous manifest.json --root root --roster roster.json --features 64 --classes 10 "
        "--updates 4000 --out next.json --password-file password"
    )
    for command in (manifest, "mv next.json manifest.json", "mv next.json.sig manifest.json.sig"):
        people.follow("keeper", command)
    people.hand_out("manifest.json", "manifest.json.sig")
    people.all_hold("manifest_version", 2)
    people.goes_on("the run goes on by other rules", *people.running)


def take_care(people: Followers) -> None:
    """Maintenance and restoring, of the second page."""
    # A machine needs a break.
    people.follow("a", "veilwalk node drain clinic-a1.toml")
    assert people.ended("clinic-a1") == 0
    assert people.status("clinic-a1").in_custody == 0
    state = load_config(people.config("clinic-a1")).state
    shutil.copytree(state, people.of("a") / "backup")
    people.start("clinic-a1")
    people.goes_on("the run goes on after the break", "clinic-a1")

    # An older state is put back: that is as after a lost disk.
    people.stop("clinic-a1")
    shutil.rmtree(state)
    shutil.move(people.of("a") / "backup", state)
    people.start("clinic-a1")
    people.goes_on("the run goes on with what was put back", "clinic-a1")


def test_the_pages_are_followed_word_by_word(followers: Followers) -> None:
    """Every command works where the page has it, the run goes on after each change, and no command is left over."""
    people = followers
    deploy(people)
    change_members(people)
    change_rules(people)
    renew(people)
    take_care(people)
    people.follow("a", "veilwalk export clinic-a1.toml --to model.npz --unfinished")
    assert load_model(people.of("a") / "model.npz")["weight"].shape == (10, 64)
    assert np.isfinite(load_model(people.of("a") / "model.npz")["weight"]).all()
    assert [command for command in written_commands(PAGES) if not people.commands[command]] == []


def test_the_page_of_overlays_is_followed_word_by_word(followers: Followers) -> None:
    """One comes and another leaves, one loses its machine, and all bring keys: the run goes on after each."""
    people = followers
    deploy(people, overlay=True)
    assert "example.org" not in (people.of("keeper") / "roster.json").read_text()

    people.follow("c", OVERLAY_KEYS, node="clinic-c3")
    people.send_card("clinic-c3")
    people.follow("b", "veilwalk node drain clinic-b2.toml")
    assert people.ended("clinic-b2") == 0
    people.follow("keeper", "veilwalk roster deal cards/clinic-c3.json --remove clinic-b2")
    (people.of("keeper") / "cards" / "clinic-b2.json").unlink()
    people.sign_and_hand_out(2)
    settings(people, "clinic-c3")
    people.start("clinic-c3")
    people.until(lambda: people.status("clinic-c3").tallies.get("updates", 0) > 0, "who joined has trained")

    people.stop("clinic-b1", kill=True)
    shutil.rmtree(people.of("b") / "keys" / "clinic-b1")
    shutil.rmtree(load_config(people.config("clinic-b1")).state)
    people.follow("b", OVERLAY_KEYS, node="clinic-b1")
    people.send_card("clinic-b1")
    people.follow("keeper", "veilwalk roster deal cards/clinic-b1.json --replace clinic-b1")
    people.sign_and_hand_out(3)
    people.start("clinic-b1")
    people.goes_on("the run goes on with who was lost", "clinic-b1")

    def rotate(node: str) -> None:
        people.follow(node[-2], "veilwalk keys rotate keys/clinic-a1 --password-file password", node=node)
        people.send_card(node)

    at_once(rotate, people.running)
    people.follow("keeper", "veilwalk roster deal cards/*.json")
    people.sign_and_hand_out(4)
    people.goes_on("the run goes on with more keys", *people.running)
    roster = Roster.read_draft(people.of("keeper") / "roster.json")
    assert (list(roster.key_epochs), roster.ids) == (list(range(26)), tuple(people.running))
    people.follow("a", "veilwalk node check clinic-a1.toml")
    assert [command for command in written_commands([OVERLAY_PAGE]) if not people.commands[command]] == []
