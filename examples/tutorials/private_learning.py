# %% [markdown]
# # Private learning, in Python
#
# What [the tutorial](../../docs/tutorials/private-learning.md) does on the command line, with fewer peers and updates
# so that it takes seconds. The script `private_learning.py` and the notebook `private_learning.ipynb` hold the same.
# Step 4 needs `pip install 'veilwalk[dp]'`.

# %%
from typing import Any

import veilwalk as vw

# %% [markdown]
# **1. Train.** Sixty peers hold a few digits each. The same data and model are trained in three other ways.

# %%
graph = vw.random_regular(60, 3, seed=1)
scheme = vw.choose_scheme(graph, "paper", support=(2, 4))
asked: dict[str, Any] = {"data": "digits", "learner": "softmax:learning_rate=0.3", "updates": 600, "attack": 100}


def show(run: vw.TrainingRun) -> None:
    """Print a line for each algorithm: what was gained, what it cost, what leaks."""
    for name, found in run.record().result["algorithms"].items():
        leak = found["anonymity"]
        print(
            f"{name}: accuracy {found['accuracy']:.1%}, {found['hops_per_update']:.1f} hops per update, "
            f"maker named {leak['hit_ratio']:.2%}"
        )


run = vw.train(scheme, partition="dirichlet:0.3", compare="plain-walk,gossip,central", **asked)
show(run)

# %% [markdown]
# **2. Read the run.** `run.model` is the model, `run.rows()` every evaluation, `run.to_frame()` the same for pandas;
# with `out="first-run"` all of it is kept in a folder.

# %%
print({name: array.shape for name, array in run.model.items()})

# %% [markdown]
# **3. See what content gives away.** Deal the digits out evenly, or so that neighbours hold the same classes.

# %%
for partition in ("iid", "graph:0.9"):
    dealt = vw.train(scheme, partition=partition, compare="none", **asked)
    for attack in dealt.record().result["content_attack"]:
        if attack["attacker"] in {"route alone", "route and content: step"}:
            print(f"{partition}, {attack['attacker']}: maker named {attack['hit_ratio']:.0%}")

# %% [markdown]
# **4. Add noise.** Clip every update to norm 0.5 and add Gaussian noise of the same size; epsilon says what that buys.

# %%
noisy = vw.train(scheme, partition="dirichlet:0.3", compare="none", noise=1.0, clip=0.5, **asked)
show(noisy)
print(noisy.record().result["privacy"]["sentence"])

# %% [markdown]
# **5. Cheaper walks.** Never stepping straight back halves the hops.

# %%
cheaper = vw.choose_scheme(graph, "paper", support=(2, 4), walk="non-backtracking")
print(f"simple: {scheme.price.hops:.1f} hops per update; non-backtracking: {cheaper.price.hops:.1f}")
show(vw.train(cheaper, partition="dirichlet:0.3", compare="none", **asked))

# %% [markdown]
# **6. Sealed for several.** The scheme that is recommended for this network; on larger ones it is sealed for more.

# %%
several = vw.recommend(graph).scheme
print(f"sealed for {several.recipients}, {several.law.name}: {several.price.hops:.1f} hops per update")
show(vw.train(several, partition="dirichlet:0.3", compare="none", **asked))
