"""The systemd unit and the container image as they are shipped, run for real: ``make packaged``, some minutes.

Both run on a Debian that is made for it, in the folder that VEILWALK_PACKAGED names (it is made once, and kept). Where
this machine cannot (no root, no tools, no mirror, no containers) the tests are skipped and say why.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.helpers.debian import ROOT, Machine, debian_root, must, remove, tool, wheels

from veilwalk.node import load_config, node_status

DEPLOY = ROOT / "examples" / "deploy"
UNIT = DEPLOY / "veilwalk-node@.service"
NODES = [f"clinic-a{number}" for number in range(1, 6)]
HOME = Path("var/lib/veilwalk")
CREDENTIAL = "/run/credentials/veilwalk-node@{node}.service/password"
FOLDER = os.environ.get("VEILWALK_PACKAGED", "")
packaged = pytest.mark.skipif(not FOLDER, reason="takes minutes and a Debian mirror: make packaged")


def test_the_unit_has_no_fault_that_systemd_can_tell(tmp_path: Path) -> None:
    """Read by the machine's own systemd, which need not run; all that it names is put where it says."""
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("no systemd-analyze here")
    text = UNIT.read_text().replace("/opt/veilwalk/bin/veilwalk", "/bin/true")
    (tmp_path / "veilwalk-node@.service").write_text(text)
    done = subprocess.run(
        [analyze, "verify", "--man=no", str(tmp_path / "veilwalk-node@clinic.service")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, [line for line in done.stderr.splitlines() if "veilwalk" in line]) == (0, [])


def test_finding_19_what_operators_need_is_in_the_files_that_we_ship() -> None:
    """A base that can be pinned, packages by hash, a health check, mounts of its own, where to write who may call."""
    image, unit = (DEPLOY / "Containerfile").read_text(), UNIT.read_text()
    assert "ARG BASE=" in image
    assert "FROM ${BASE}" in image
    assert "HEALTHCHECK" in image
    assert "pip install --no-cache-dir --require-hashes --requirement" in image
    assert "\nPrivateMounts=yes\n" in unit
    assert "IPAddressAllow=" in unit


def test_finding_19_every_package_of_the_image_has_its_pinned_version_and_a_hash() -> None:
    """All that the package needs, as constraints.txt has it; ``tools.image_requirements`` writes them anew."""
    text = (DEPLOY / "requirements.txt").read_text().replace("\\\n", " ")
    packages = [line.split() for line in text.splitlines() if not line.startswith("#")]
    pinned = {line.lower() for line in (ROOT / "constraints.txt").read_text().splitlines()}
    assert {first for first, *_ in packages} <= pinned
    assert all(hashes and all(one.startswith("--hash=sha256:") for one in hashes) for _, *hashes in packages)
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    names = {re.split("[<>=]", need)[0] for need in needed}
    assert names <= {first.partition("==")[0] for first, *_ in packages}


@pytest.fixture(scope="module")
def folder() -> Path:
    made = Path(FOLDER).resolve()
    made.mkdir(parents=True, exist_ok=True)
    if os.geteuid() != 0:
        pytest.skip("to make a Debian takes root")
    return made


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of five nodes in a ring with a chord, all on loopback, with a password."""
    made = tmp_path_factory.mktemp("network")
    edges = [*zip(NODES, NODES[1:] + NODES[:1], strict=True), (NODES[0], NODES[2])]
    (made / "edges.txt").write_text("".join(f"{one} {other}\n" for one, other in edges))
    (made / "password").write_text("correct horse\n")
    (made / "password").chmod(0o600)

    def veilwalk(command: str) -> None:
        words = [sys.executable, "-c", "from veilwalk.cli import main; main()", *command.split()]
        done = subprocess.run(words, cwd=made, capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, done.stderr

    for number, node in enumerate(NODES):
        veilwalk(f"keys new --id {node} --address 127.0.0.1:{7101 + number} --password-file password")
        # Keys of a directory each, cards of one.
        (made / "cards").mkdir(exist_ok=True)
        shutil.copy(made / "keys" / node / f"{node}.json", made / "cards")
        labels = np.arange(20) % 2
        np.savez(made / f"{node}.npz", features=np.stack([labels, 1 - labels], 1).astype(np.float32), labels=labels)
        (made / f"{node}.npz").chmod(0o600)
    veilwalk("keys new --root --password-file password")
    veilwalk(f"roster make {' '.join(f'cards/{node}.json' for node in NODES)} --edges edges.txt --out roster.json")
    veilwalk("roster sign roster.json --root root --password-file password")
    veilwalk(
        "node manifest --root root --roster roster.json --features 2 --classes 2 --updates 100000 --dwell 0.02 "
        "--away 0 --out manifest.json --password-file password"
    )
    return made


def settings(node: str, *, folder: str, password: str) -> str:
    number = NODES.index(node)
    return (
        f'keys = "{folder}keys/{node}"\nroot = "{folder}root.pub"\nroster = "{folder}roster.json"\n'
        f'manifest = "{folder}manifest.json"\ndata = "{folder}{node}.npz"\nstate = "{folder}state/{node}"\n'
        f'password_file = "{password}"\nmetrics = "127.0.0.1:{9101 + number}"\nstarts = {str(not number).lower()}\n'
    )


def put_network(network: Path, where: Path, password: str) -> None:
    """Copy what nodes need, and write their settings."""
    for name in ("roster.json", "roster.json.sig", "manifest.json", "manifest.json.sig"):
        shutil.copy(network / name, where / name)
    shutil.copy(network / "root" / "root.pub", where)
    shutil.copytree(network / "keys", where / "keys")
    (where / "state").mkdir(mode=0o700)
    for node in NODES:
        shutil.copy(network / f"{node}.npz", where)
        (where / f"{node}.toml").write_text(settings(node, folder="", password=password.format(node=node)))


# ---- systemd -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def machine(folder: Path, network: Path) -> Iterator[Machine]:
    """A machine that was set up as the unit says, and is up."""
    root = folder / "machine"
    remove(root)
    must("cp", "-a", "--reflink=auto", debian_root(folder), root)
    made = Machine(folder, root)
    made.prepare(
        "python3 -m venv /opt/veilwalk\n"
        "/opt/veilwalk/bin/pip install --quiet --constraint /constraints.txt veilwalk\n"
        "useradd --system --home-dir /var/lib/veilwalk veilwalk",
        f"--bind-ro={wheels(folder)}:/wheels", f"--bind-ro={ROOT / 'constraints.txt'}:/constraints.txt",
    )  # fmt: skip
    shutil.copy(UNIT, root / "etc/systemd/system")
    (root / "etc/veilwalk").mkdir(mode=0o700)
    shutil.copy(network / "password", root / "etc/veilwalk/password")
    (root / HOME).mkdir(mode=0o700)
    put_network(network, root / HOME, CREDENTIAL)
    made.prepare("chown -R veilwalk:veilwalk /var/lib/veilwalk")
    try:
        with made.booted():
            # Never the machine's own.
            own = Path(tempfile.gettempdir()).stat()
            assert made.say("stat", "-c", "%d:%i", tempfile.gettempdir()).strip() != f"{own.st_dev}:{own.st_ino}"
            yield made
    finally:
        remove(root)


def unit(node: str) -> str:
    return f"veilwalk-node@{node}.service"


def shown(machine: Machine, node: str) -> dict[str, str]:
    """What systemd knows of a node."""
    names = "ActiveState,SubState,MainPID,NRestarts,ExecMainStatus,Result"
    lines = machine.say("systemctl", "show", unit(node), "--property", names).splitlines()
    return dict(line.split("=", 1) for line in lines)


def healthy(machine: Machine, node: str) -> bool:
    look = f"import urllib.request as r; print(r.urlopen('http://127.0.0.1:{9101 + NODES.index(node)}/healthz').status)"
    return machine.say("python3", "-c", look).strip() == "200"


def updates(machine: Machine) -> int:
    states = [load_config(machine.root / HOME / f"{node}.toml").state for node in NODES]
    return sum(node_status(state).tallies.get("updates", 0) for state in states)


@packaged
def test_systemd_finds_the_unit_sound_and_tight(machine: Machine) -> None:
    assert machine.say("systemd-analyze", "verify", "/etc/systemd/system/veilwalk-node@.service") == ""
    report = machine.say(
        "systemd-analyze", "security", "--no-pager", "--offline=true", f"/etc/systemd/system/{UNIT.name}"
    )
    (exposure,) = re.findall(r"Overall exposure level for .*: ([0-9.]+)", report)
    assert float(exposure) <= 1.6, report


@packaged
def test_nodes_live_under_systemd(machine: Machine) -> None:
    """Started, healthy, at work; killed, they come back; stopped, they stay down; nothing is lost on the way."""
    check = machine.say(
        "runuser", "-u", "veilwalk", "--", "/bin/sh", "-c",
        "cd /var/lib/veilwalk && sed 's,/run/credentials/.*/password,/tmp/password,' clinic-a1.toml > check.toml"
        " && (umask 077; echo correct horse > /tmp/password)"
        " && /opt/veilwalk/bin/veilwalk node check check.toml --no-peers; echo exit $?; rm check.toml /tmp/password",
    )  # fmt: skip
    assert check.endswith("exit 0\n"), check
    machine.say("systemctl", "start", *map(unit, NODES))
    machine.until(lambda: all(healthy(machine, node) for node in NODES))
    before = updates(machine)
    machine.until(lambda: updates(machine) >= before + 5)
    first = shown(machine, "clinic-a1")
    assert (first["ActiveState"], first["NRestarts"]) == ("active", "0")
    sealed = machine.say("cat", f"/proc/{first['MainPID']}/limits", f"/proc/{first['MainPID']}/status")
    assert re.search(r"Max core file size +0 +0", sealed)
    for line in ("NoNewPrivs:\t1", "CapBnd:\t0000000000000000", "Seccomp:\t2"):
        assert line in sealed
    assert (
        machine.say("stat", "-c", "%a %U", "/var/lib/veilwalk", "/var/lib/veilwalk/state/clinic-a1")
        == "700 veilwalk\n" * 2
    )
    assert machine.say("systemctl", "reload", unit("clinic-a1")) == ""
    assert shown(machine, "clinic-a1")["MainPID"] == first["MainPID"]
    machine.say("/bin/sh", "-c", f"kill -KILL {first['MainPID']}")
    machine.until(lambda: shown(machine, "clinic-a1")["NRestarts"] == "1" and healthy(machine, "clinic-a1"))
    before = updates(machine)
    machine.until(lambda: updates(machine) >= before + 5)
    machine.say("systemctl", "stop", *map(unit, NODES))
    for node in NODES:
        assert (shown(machine, node)["ActiveState"], shown(machine, node)["Result"]) == ("inactive", "success")
        tallies = node_status(load_config(machine.root / HOME / f"{node}.toml").state).tallies
        assert not {"damaged", "learner_failures", "set_aside"} & tallies.keys()
    lines = machine.say("journalctl", "--no-pager", "--output=cat", f"--unit={unit('clinic-a1')}").splitlines()
    events = [json.loads(line)["event"] for line in lines if line.startswith("{")]
    assert events.count("started") == 2
    assert not any("Operation not permitted" in line or "storage_trouble" in line for line in lines), lines


@packaged
def test_what_only_the_operator_can_mend_is_left_down_and_the_rest_is_tried_again(machine: Machine) -> None:
    """Exit code 2 is said once; a file that others will mend (exit code 3) is waited for."""
    home, node = machine.root / HOME, "clinic-a2"
    config = home / f"{node}.toml"
    before = config.read_text()
    config.write_text("unknown = 1\n" + before)
    machine.say("systemctl", "start", unit(node))
    machine.until(lambda: shown(machine, node)["ActiveState"] == "failed")
    time.sleep(7)
    left = shown(machine, node)
    assert (left["ActiveState"], left["NRestarts"], left["ExecMainStatus"]) == ("failed", "0", "2")
    config.write_text(before)
    signature = home / "roster.json.sig"
    sound = signature.read_text()
    signature.write_text("A" * 86 + "==\n")
    machine.say("systemctl", "start", unit(node))
    machine.until(
        lambda: (shown(machine, node)["SubState"], shown(machine, node)["ExecMainStatus"]) == ("auto-restart", "3")
    )
    signature.write_text(sound)
    log = ("journalctl", "--no-pager", "--output=cat", f"--unit={unit(node)}", "--lines=5")
    machine.until(lambda: '"started"' in machine.say(*log))
    assert int(shown(machine, node)["NRestarts"]) >= 1
    machine.say("systemctl", "stop", unit(node))


# ---- container -----------------------------------------------------------------------------------------------------


class Podman:
    """Podman with images, containers and settings of its own, in a folder."""

    def __init__(self, folder: Path) -> None:
        tmp = folder / "podman-tmp"
        tmp.mkdir(exist_ok=True)
        where = ("--root", folder / "podman", "--runroot", folder / "podman-run", "--tmpdir", tmp)
        self._words = ("podman", *where, "--runtime", tool(folder, "runc", "runc"), "--cgroup-manager", "cgroupfs")
        self._environment = os.environ | {"TMPDIR": str(tmp)}

    def __call__(self, *words: object) -> str:
        """Run it; where it cannot, it is skipped."""
        return must(*self._words, *words, env=self._environment)

    def says(self, *words: object) -> subprocess.CompletedProcess[str]:
        """Run it, and return whatever comes of it."""
        command = [str(word) for word in (*self._words, *words)]
        return subprocess.run(command, env=self._environment, capture_output=True, text=True, check=False, timeout=120)


@pytest.fixture(scope="module")
def podman(folder: Path) -> Iterator[Podman]:
    """The image, built by the shipped file on a base that is like the one it names, without its registry."""
    if shutil.which("podman") is None:
        pytest.skip("podman is not here")
    made = Podman(folder)
    base, archive = debian_root(folder), folder / "base.tar"
    # Python's own images let pip install into the system.
    must("tar", "-C", base, "--exclude=./proc/*", "--exclude=./sys/*", "--exclude=./run/*",
         "--exclude=./usr/lib/python3*/EXTERNALLY-MANAGED", "-cf", archive, ".")  # fmt: skip
    try:
        made("import", "--quiet", archive, "localhost/python:3.11-slim")
        # Chroot asks least of the machine; it has the machine's network, which pip is told not to use.
        made("build", "--quiet", "--isolation=chroot", "--network=host", "--layers=false",
             "--from=localhost/python:3.11-slim", f"--volume={wheels(folder)}:/wheels:ro",
             "--tag=veilwalk-node", f"--file={DEPLOY / 'Containerfile'}", ROOT)  # fmt: skip
        yield made
    finally:
        archive.unlink(missing_ok=True)
        made.says("rm", "--all", "--force", "--time=5")
        made.says("rmi", "--all", "--force")
        for left in ("podman", "podman-run", "podman-tmp"):
            remove(folder / left)


@packaged
def test_nodes_live_in_containers(podman: Podman, network: Path, tmp_path: Path) -> None:
    """Checked, started, healthy, at work, with no rights and nowhere to write but their volume; stopped, they end."""
    # Podman asks for the most there is, which not every root may give.
    bounds = ["--ulimit=nofile=4096:4096", "--ulimit=nproc=4096:4096", "--ulimit=core=0:0"]
    tight = ["--read-only", "--cap-drop=all", "--security-opt=no-new-privileges", "--cgroups=no-conmon", *bounds]
    for node in NODES:
        where = tmp_path / node
        where.mkdir(mode=0o700)
        put_network(network, where, "/node/password")
        shutil.copy(network / "password", where)
        (where / f"{node}.toml").rename(where / "node.toml")
        must("chown", "-R", "1000:1000", where)
    volume = [f"--volume={tmp_path / node}:/node" for node in NODES]
    looked = podman.says("run", "--rm", "--network=none", *tight, volume[0], "--entrypoint=veilwalk", "veilwalk-node",
                         "node", "check", "/node/node.toml", "--no-peers")  # fmt: skip
    assert looked.returncode == 0, looked.stdout + looked.stderr
    net = "none"
    for node, mounted in zip(NODES, volume, strict=True):
        podman("run", "--detach", f"--name={node}", f"--network={net}", *tight, mounted, "veilwalk-node")
        net = f"container:{NODES[0]}"
    look = "import urllib.request as r; print(r.urlopen('http://127.0.0.1:{port}/healthz').status)"
    end = time.monotonic() + 120
    while not all(
        podman.says("exec", node, "python3", "-c", look.format(port=9101 + number)).stdout.strip() == "200"
        for number, node in enumerate(NODES)
    ):
        assert time.monotonic() < end, podman.says("logs", NODES[0])
        time.sleep(1)
    states = [tmp_path / node / "state" / node for node in NODES]
    while sum(node_status(state).tallies.get("updates", 0) for state in states) < 5:
        assert time.monotonic() < end
        time.sleep(0.5)
    podman("stop", "--time=30", *NODES)
    for node in NODES:
        assert podman("inspect", node, "--format={{.State.ExitCode}}").strip() == "0", podman.says("logs", node)
