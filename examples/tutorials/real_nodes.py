# %% [markdown]
# # Four real nodes on one machine
#
# What [the tutorial](../../docs/tutorials/real-nodes.md) does by hand, in a temporary folder. The script
# `real_nodes.py` and the notebook `real_nodes.ipynb` hold the same.

# %%
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from veilwalk.core.errors import SpoolError
from veilwalk.learning import load_data
from veilwalk.node import load_config, node_status

folder = Path(tempfile.mkdtemp())
names = ("graz", "linz", "ulm", "wien")


def veilwalk(*words: str) -> list[str]:
    """Return a command line."""
    return [sys.executable, "-m", "veilwalk", *words]


def run(*words: str) -> None:
    """Run a command of veilwalk in the folder, and wait."""
    subprocess.run(veilwalk(*words), cwd=folder, check=True, capture_output=True)  # noqa: S603 - our own command


def has_finished(name: str) -> bool:
    """Return whether a node holds the finished model; one that has not begun has no state yet."""
    try:
        return node_status(load_config(folder / f"{name}.toml").state).finished
    except SpoolError:
        return False


# %% [markdown]
# **1. Each member makes keys.** The tutorial takes the ports 7201 to 7204; this script takes free ones.

# %%
free = [socket.create_server(("127.0.0.1", 0)) for _ in names]
ports = [server.getsockname()[1] for server in free]
for server in free:
    server.close()
for name, port in zip(names, ports, strict=True):
    run("keys", "new", "--id", name, "--address", f"127.0.0.1:{port}")

# %% [markdown]
# **2. One person signs who belongs, and what is run.**

# %%
run("keys", "new", "--root")
run("roster", "make", *(f"keys/{name}/{name}.json" for name in names), "--graph", "complete:4", "--out", "roster.json")
run("roster", "sign", "roster.json", "--root", "root")
task = ("--features", "64", "--classes", "10", "--updates", "40", "--away", "0")
run("node", "manifest", "--root", "root", "--roster", "roster.json", *task, "--out", "manifest.json")

# %% [markdown]
# **3. Each member writes its settings and data.**

# %%
digits = load_data("digits").train
for number, name in enumerate(names):
    np.savez(folder / f"{name}.npz", features=digits.features[number::4], labels=digits.labels[number::4])
    lines = [f'keys = "keys/{name}"', 'root = "root/root.pub"', 'roster = "roster.json"', 'manifest = "manifest.json"']
    lines += [f'data = "{name}.npz"', f'state = "state/{name}"', f"starts = {str(number == 0).lower()}"]
    (folder / f"{name}.toml").write_text("\n".join(lines))

# %% [markdown]
# **4. Run all four, until they have finished.**

# %%
nodes = []
for name in names:
    with (folder / f"{name}.log").open("wb") as log:
        command = veilwalk("node", "run", "--config", f"{name}.toml")
        nodes.append(subprocess.Popen(command, cwd=folder, stderr=log))  # noqa: S603 - our own command
try:
    while not all(has_finished(name) for name in names):
        time.sleep(0.5)
finally:
    for node in nodes:
        node.terminate()
        node.wait()
status = [node_status(load_config(folder / f"{name}.toml").state) for name in names]
print(f"updates: {status[0].iteration} of 40, by node: {[each.tallies.get('updates', 0) for each in status]}")

# %% [markdown]
# **5. Take the model.** All nodes hold the same.

# %%
for name in names:
    run("export", f"{name}.toml", "--to", f"model-{name}.npz")
same = len({(folder / f"model-{name}.npz").read_bytes() for name in names}) == 1
print(f"one model at all nodes: {same}")
