# Each target works on a fresh clone: it makes its own virtual environment first.
PYTHON ?= python3
VENV := .venv
# Flower pins other versions than ours, so it has an environment of its own.
BRIDGES := .venv-bridges
BIN := $(VENV)/bin
# One pinned set for every target, so that two installs are the same.
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt
PIP_BRIDGES := $(BRIDGES)/bin/python -m pip --disable-pip-version-check install --quiet --constraint constraints-bridges.txt

# Threads that wait for each other turn in circles by default; with several tests at once that took half of both cores.
QUIETLY := OPENBLAS_NUM_THREADS=1 OMP_WAIT_POLICY=passive

# Tests start hundreds of processes: where compiled files are not kept, each of them compiles the package again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test check kernels chain-kernels collect browser prometheus docs screenshots choices figures bench api audit-campaign attackers sealed-attackers overlay-attackers walk-comparison watch-pictures graph-table routes learning noise robustness campaign short-campaign packaged bridges clean
.DELETE_ON_ERROR:

demo: $(VENV)/.kernels  ## The main job, offline: 300 peers learn digits, and what that hides and costs
	@rm -rf out/demo
	@$(BIN)/veilwalk demo --out out/demo

test: $(VENV)/.test browser prometheus  ## Everything that must hold before a change lands
	@$(MAKE) --no-print-directory -j2 kernels check chain-kernels collect
	@# Three workers on two cores, since many tests wait: for nodes that wait for each other, and for processes.
	$(QUIETLY) $(BIN)/pytest -n 3 --dist worksteal

check: $(VENV)/.test  ## Formatting, lint, types, layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Most of what tests need compiled, while the other core checks types, and then compiles the rest and the tests.
kernels: $(VENV)/.test
	@$(QUIETLY) $(BIN)/veilwalk audit --graph rrg:20:3:seed=1 --law far:2 --recipients 2 --walk non-backtracking --updates 2000 >/dev/null 2>&1

chain-kernels: check
	@$(QUIETLY) $(BIN)/veilwalk audit --graph rrg:20:3:seed=1 --law far:2 --walk simple --updates 2000 >/dev/null 2>&1
	@$(QUIETLY) $(BIN)/veilwalk design --graph ba:20:2:seed=1 --support 2:3 --walk non-backtracking >/dev/null 2>&1

collect: chain-kernels
	@$(BIN)/pytest --collect-only --quiet >/dev/null 2>&1 || true

# Debian's Chromium reads the report in a test; without it that test is skipped, and says so.
browser:
	@command -v chromium >/dev/null || apt-get install -y -qq --no-install-recommends chromium >/dev/null 2>&1 \
		|| echo "chromium is missing and could not be installed: the browser test will be skipped"

# Debian's Prometheus (20 MB) tries the shipped alerts; run by hand in that test, never as a service.
prometheus:
	@command -v promtool >/dev/null || apt-get install -y -qq --no-install-recommends prometheus >/dev/null 2>&1 \
		|| echo "prometheus is missing and could not be installed: the test of alerts will be skipped"

docs: $(VENV)/.docs  ## The site, from the pages of this repository, into out/site; dead links and anchors end it
	$(BIN)/python -m tools.pages.site

screenshots: $(VENV)/.demo browser  ## The report of the demo as a picture, for the pages; writes docs
	@test -f out/demo/record.json || $(BIN)/veilwalk demo --out out/demo
	$(BIN)/python -m tools.pages.screenshots out/demo

choices: $(VENV)/.demo  ## What design recommends for some networks; minutes, resumes; writes docs
	$(BIN)/python -m tools.pages.choices

figures: $(VENV)/.demo  ## The paper's three figures into out/paper
	$(BIN)/veilwalk paper reproduce all --out out/paper

bench: $(VENV)/.bench  ## Ratios against the peers a user would pick; takes a while
	$(BIN)/python -m benchmarks.speed.graphs
	$(BIN)/python -m benchmarks.speed.chains
	$(BIN)/python -m benchmarks.speed.walks
	$(BIN)/python -m benchmarks.speed.learning
	$(BIN)/python -m benchmarks.speed.sealing
	$(BIN)/python -m benchmarks.speed.node

api: $(VENV)/.demo  ## The Python reference, the manual page and the notebooks from the code; writes docs and examples
	$(BIN)/python -m tools.pages.api
	$(BIN)/python -m tools.pages.man
	$(BIN)/python -m tools.pages.cli
	$(BIN)/python -m tools.pages.notebooks

graph-table: $(VENV)/.demo  ## Graphs, walks and laws side by side; ten minutes; writes docs
	$(BIN)/python -m tools.pages.graph_table

routes: $(VENV)/.demo  ## Sealed for one and for several beside onions, crowds, gossip; twenty minutes, resumes; writes docs
	$(BIN)/python -m tools.pages.routes

learning: $(VENV)/.test  ## Learning by the clock on MNIST; half an hour, resumes; writes docs
	$(BIN)/python -m tools.pages.clock

noise: $(VENV)/.test  ## What noise costs and buys on MNIST, a record or a node protected; some minutes, resumes; writes docs
	$(BIN)/python -m tools.pages.noise

robustness: $(VENV)/.demo  ## What poisoners do, and what tests of received models are worth; some ten minutes, resumes; writes docs
	$(BIN)/python -m tools.pages.robustness

audit-campaign: $(VENV)/.demo  ## Every law, every observer, the curve over colluders; half an hour, resumes; writes docs
	$(BIN)/python -m tools.pages.audit_campaign

attackers: $(VENV)/.demo  ## The strongest attackers on 60 peers, printed; some minutes, resumes
	$(BIN)/python -m tools.pages.attackers

overlay-attackers: $(VENV)/.demo  ## What coalitions name on a secret overlay; half an hour; writes docs
	$(BIN)/python -m tools.pages.overlay_attackers

sealed-attackers: $(VENV)/.demo  ## The strongest attackers of what is sealed for several; a quarter of an hour, resumes; writes docs
	$(BIN)/python -m tools.pages.sealed_attackers

watch-pictures: $(VENV)/.test browser  ## The pictures of the live page; a minute or two; writes docs
	$(BIN)/python -m tools.pages.watch_pictures
	$(BIN)/python -m tools.pages.walk_picture

walk-comparison: $(VENV)/.demo  ## Hops, entropy, attackers of the walks side by side; a quarter of an hour, resumes; writes docs
	$(BIN)/python -m tools.pages.walk_comparison

campaign: $(VENV)/.test  ## Kills, pauses, power cuts, bad networks, fuzzing; hours, resumes; writes docs
	$(BIN)/python -m tests.campaigns.campaign

short-campaign: $(VENV)/.test  ## Kills, pauses and outages of 24 nodes, sealed for 16, with a dwell; minutes; writes docs
	$(BIN)/python -m tests.campaigns.campaign --recipients 16 --share 0.1 --only T15,T19

packaged: $(VENV)/.test  ## The systemd unit and the container image, run for real as root; minutes; needs podman and a Debian mirror
	VEILWALK_PACKAGED=out/packaged $(BIN)/pytest tests/e2e/test_packaged_node.py

bridges: $(BRIDGES)/.installed  ## Flower apps and adapters, by the real packages in an environment of their own; minutes
	$(QUIETLY) $(BRIDGES)/bin/python -m pytest tests/bridges

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "veilwalk needs Python 3.11 or newer; $(PYTHON) is older: set PYTHON=..."; exit 2; }
	$(PYTHON) -m venv $(VENV)

# The build back-end is installed first and pinned too: an isolated build would fetch whatever is newest.
$(VENV)/.demo: $(VENV)/bin/python pyproject.toml constraints.txt
	$(PIP) hatchling editables
	$(PIP) --no-build-isolation --editable '.[report]'
	@touch $@

$(VENV)/.docs: $(VENV)/.demo
	$(PIP) --no-build-isolation --editable '.[report,docs]'
	@touch $@

# A few updates of the same kind compile what the demo needs: part of the installation, once.
$(VENV)/.kernels: $(VENV)/.demo
	@rm -rf $(VENV)/first
	@$(BIN)/veilwalk train --graph overlay:100:3:seed=1 --updates 3 --out $(VENV)/first >/dev/null
	@rm -rf $(VENV)/first
	@touch $@

$(VENV)/.test: $(VENV)/.demo
	$(PIP) --no-build-isolation --editable '.[report,dev,docs,torch,dp,export,tensorboard,parquet,ray,watch]'
	@touch $@

$(VENV)/.bench: $(VENV)/.test
	$(PIP) --no-build-isolation --editable '.[report,dev,docs,bench,torch,dp,export,tensorboard,parquet,ray,watch]'
	@# Its own metadata pins an old NumPy that it does not need; it runs with ours.
	$(PIP) --no-deps PyDTMC
	@touch $@

# Torch is installed first, so that nothing brings another.
$(BRIDGES)/.installed: pyproject.toml constraints-bridges.txt
	$(PYTHON) -m venv $(BRIDGES)
	$(PIP_BRIDGES) torch
	$(PIP_BRIDGES) hatchling editables
	$(PIP_BRIDGES) --no-build-isolation --editable '.[report,torch,flower,peft]' hypothesis pytest lightning skorch
	@touch $@

clean:
	rm -rf $(VENV) $(BRIDGES) out .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
