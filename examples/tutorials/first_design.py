# %% [markdown]
# # Your first design, in Python
#
# What [the tutorial](../../docs/tutorials/first-design.md) does on the command line. Run it as a script, or open it as
# a notebook: Jupyter (with jupytext) and VS Code know `# %%` as cells.

# %%
import tempfile
from pathlib import Path

import veilwalk as vw
from veilwalk.graphs import mean_shell_sizes
from veilwalk.theory import AnonymityModel, WalkModel

# %% [markdown]
# **1. Look at a network.** How many nodes stand at each distance is who you can hide among.

# %%
graph = vw.random_regular(300, 3, seed=1)
for distance, nodes in enumerate(mean_shell_sizes(graph)):
    print(f"distance {distance}: {nodes:.2f} nodes")

# %% [markdown]
# **2. Design a law for it.** Destinations 2 to 6 hops away, by the paper's rule with the exact chain of this very
# graph. In a notebook `found` alone shows a table.

# %%
found = vw.design(graph, law="paper-exact", support=(2, 6))
print(f"2 to 6: {found.price.hops:.2f} hops per update ({found.price.kind})")
print(f"2 to 6: {found.exposure.node_entropy.mean:.3f} nats, where only the choice is known")

# %% [markdown]
# **3. Try to do better.** More nodes to hide among, hardly more hops.

# %%
wider = vw.design(graph, law="paper-exact", support=(2, 8))
print(f"2 to 8: {wider.price.hops:.2f} hops per update ({wider.price.kind})")
print(f"2 to 8: {wider.exposure.node_entropy.mean:.3f} nats, where only the choice is known")

# %% [markdown]
# **4. Compare with the closed form**, which knows only N and c, and with what the paper's own text would have said.

# %%
model = AnonymityModel(walk=WalkModel(n_nodes=300, degree=3), support=vw.DistanceSupport(2, 6))
for formulas in ("corrected", "printed"):
    closed = vw.design_regular(model, formulas=formulas)
    print(f"closed form, {formulas}: {closed.mean_iteration_hops:.2f} hops per update")

# %% [markdown]
# **5. Keep the law.** The file knows the walk it is for, and its graph by a digest.

# %%
path = Path(tempfile.mkdtemp()) / "law.npz"
vw.save_scheme(path, found.scheme)
again = vw.choose_scheme(graph, str(path))
print(f"read again: {again.price.hops:.2f} hops per update")
