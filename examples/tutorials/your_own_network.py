# %% [markdown]
# # Your own network, in Python
#
# What [the tutorial](../../docs/tutorials/your-own-network.md) does on the command line, on a smaller network so that
# it takes seconds. The script `your_own_network.py` and the notebook `your_own_network.ipynb` hold the same.

# %%
import tempfile
from pathlib import Path

import veilwalk as vw

# %% [markdown]
# **1. A network and data.** A file with two names a line, and rows for each site. Here both are made up.

# %%
folder = Path(tempfile.mkdtemp())
names = [f"site-{number:02}" for number in range(1, 21)]
edges = vw.random_regular(20, 4, seed=1).edges()
(folder / "sites.csv").write_text("".join(f"{names[a]},{names[b]}\n" for a, b in edges))
digits = vw.load_data("digits").train
rows = {name: (digits.features[i::20], digits.labels[i::20]) for i, name in enumerate(names)}

# %% [markdown]
# **2. Look at the network.** Nodes keep their names.

# %%
graph = vw.read_graph(folder / "sites.csv")
print(f"{graph.n_nodes} nodes, {len(graph.edges())} edges, the first is {graph.label(0)}")

# %% [markdown]
# **3. Ask what to use.** The scheme is the cheapest that hides enough; on few nodes nothing hides that much.

# %%
scheme = vw.recommend(graph).scheme
print(f"sealed for {scheme.recipients}, {scheme.law.name}: {scheme.price.hops:.1f} hops per update")

# %% [markdown]
# **4. Attack it.** Two peers that share everything name far more makers than the peer that opens an update.

# %%
audit = vw.audit(scheme, updates=4_000, observers=("prior", "last-hop", "coalition"), colluders=2, seed=1)
for name in audit:
    print(f"{name}: names {audit[name].hit_ratio:.1%}")

# %% [markdown]
# **5. Train with it, and keep both.**

# %%
run = vw.train(scheme, data=rows, learner="softmax:learning_rate=0.3", updates=200, compare="none", attack=0)
print(f"accuracy {run.record().result['algorithms']['private-walk']['accuracy']:.1%}")
vw.save_scheme(folder / "scheme.npz", scheme)
vw.save_model(folder / "model.npz", run.model)
