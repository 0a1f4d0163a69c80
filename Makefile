# make demo    see it work                     make check   lint, types, layering: under a minute
# make test    everything, fast stages first   make bench   the figures; ONLY=core,store picks some
# make simulate RUNS=50000   torture the core  make setup   what all of these do first
# make chaos MINUTES=10      the same on real Ray, with real kills
# make fuzz MINUTES=60       random bytes at every door
# make hosts MINUTES=30      on three hosts, with power cuts and cut links; as root; REPLICAS=2
.DEFAULT_GOAL := help
PYTHON_HERE := .venv/bin/python
ONLY ?=
RUNS ?= 50000
SEED ?=
FAULTS ?=
SET ?=
MINUTES ?= 10
STAGES ?=
REPLICAS ?=
DURABILITY ?=

.PHONY: help setup demo test check bench simulate chaos fuzz hosts clean

help:
	@sed -n 's/^# //p' Makefile

setup:
	@.ci/setup

demo: setup
	@.venv/bin/pxrs demo

test: setup
	@$(PYTHON_HERE) -m tests.stages $(STAGES)

check: setup
	@$(PYTHON_HERE) -m tests.stages check

bench: setup
	@$(if $(findstring peers,$(ONLY)),.ci/setup peers)
	@$(PYTHON_HERE) -m tests.benchmarks $(ONLY)

simulate: setup
	@$(PYTHON_HERE) -m tests.simulation --runs $(RUNS) $(if $(WORLD),--world $(WORLD)) \
		$(if $(SEED),--seed $(SEED)) $(if $(FAULTS),--faults $(FAULTS)) $(foreach each,$(SET),--set $(each))

chaos: setup
	@$(PYTHON_HERE) -m tests.actors.chaos --minutes $(MINUTES) $(if $(SEED),--seed $(SEED))

fuzz: setup
	@$(PYTHON_HERE) -m tests.fuzz --minutes $(MINUTES) $(if $(SEED),--seed $(SEED))

hosts: setup
	@$(PYTHON_HERE) -m tests.hosts --minutes $(MINUTES) $(if $(SEED),--seed $(SEED)) \
		$(if $(REPLICAS),--replicas $(REPLICAS)) $(if $(DURABILITY),--durability $(DURABILITY))

clean:
	@rm -rf build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis *.egg-info
	@find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +
