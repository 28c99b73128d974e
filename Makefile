# `make` lists the targets. Everything is written in the clone and in ~/.cache/pulumi-trainer.

# The first Python on PATH that can make environments and is new enough; `make PYTHON=...` names another.
PYTHON ?= $(shell for python in python3 python3.14 python3.13 python3.12 python3.11 python3.10; do \
  $$python -c 'import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 10))' 2>/dev/null && echo $$python && break; done)
SETUP = $(or $(PYTHON),$(error Python 3.10 or newer, with its modules venv and ensurepip, is not on PATH: \
  install it (Debian and Ubuntu: python3-venv), or name it: make PYTHON=/path/to/python3)) tools/setup.py
RUN := .venv/bin/python tools/stack.py

.DEFAULT_GOAL := help
.PHONY: help setup up preview preview-kubernetes logs down clean env check test test-cluster test-nodes test-frameworks coverage \
  bench bench-cluster cluster-up cluster-down

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "%-20s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## .venv with pinned packages, and the Pulumi CLI
	@$(SETUP)

up: setup ## train the quickstart's model on two local nodes
	@$(RUN) up

preview: setup ## what `make up` would do, field by field
	@$(RUN) preview

preview-kubernetes: setup ## the same program for a cluster: its full JobSet, without one
	@$(RUN) preview-kubernetes

logs: setup ## what the quickstart's jobs print, until they end
	@$(RUN) logs

down: setup ## end and remove what `make up` has made
	@$(RUN) down

clean: ## down, then remove everything that set-up and the stacks have written into the clone
	@if [ -e .pulumi-state/.pulumi ] || [ -e .pulumi-trainer ]; then $(MAKE) --no-print-directory setup && $(RUN) clean; fi
	@if [ -e build/cluster ]; then $(MAKE) --no-print-directory cluster-down; fi
	@rm -rf .venv build dist .pulumi .pulumi-state .pulumi-trainer *.egg-info \
	  .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
	@echo "kept: ~/.cache/pulumi-trainer (downloads, the Pulumi CLI, the test cluster, environments of jobs); to remove it: rm -rf ~/.cache/pulumi-trainer"

env: ## for commands by hand: eval "`make -s env`"
	@$(SETUP) >&2
	@$(RUN) env

check: ## lint, types, layers, wheel and sdist
	@$(SETUP) --dev --no-cli
	@.venv/bin/python tools/check.py

cluster-up: ## a Kubernetes cluster on this machine, its KUBECONFIG printed last; NODES=2: with real nodes (Linux, root)
	@$(SETUP) --dev --no-cli >&2
	@.venv/bin/python -m tools.cluster up --nodes $(or $(NODES),0)

cluster-down: ## end it; no process, mount or cgroup stays
	@$(SETUP) --dev --no-cli >&2
	@.venv/bin/python -m tools.cluster down

test: ## all tests but those of test-*, and the unit tests on the oldest and the newest Python of this machine
	@$(SETUP) --dev
	@$(RUN) exec python tools/pythons.py
	@$(RUN) exec python -m pytest -n 2
	@.venv/bin/python -m tools.cluster build
	@$(RUN) exec python -m pytest -m smoke tests/cluster

test-cluster: ## the Kubernetes target on a real control plane with simulated nodes
	@$(SETUP) --dev
	@.venv/bin/python -m tools.cluster build --plugin
	@$(RUN) exec python -m pytest -n 3 --dist=worksteal tests/cluster # they wait more than they compute

test-nodes: ## and on real nodes (Linux, root)
	@$(SETUP) --dev
	@.venv/bin/python -m tools.cluster build --nodes
	@$(RUN) exec python -m pytest tests/nodes

test-frameworks: ## train with every framework's real packages, MPI's mpirun too; the first run downloads a few gigabytes
	@$(SETUP) --dev
	@$(RUN) exec python tools/debian.py
	@$(RUN) exec python -m pytest tests/frameworks

coverage: ## branch coverage of documents, admission, pipeline and lifecycle by the unit and golden tests: 95 % or it fails
	@$(SETUP) --dev --no-cli
	@$(RUN) exec python -m coverage run -m pytest -q tests/unit tests/golden -k 'not local and not initializers and not tools'
	@$(RUN) exec python -m coverage report

bench: ## measure, and print the tables of docs/benchmarks.md
	@$(SETUP) --dev
	@$(RUN) exec python -m tests.bench

bench-cluster: ## the same for a cluster, beside pulumi-kubernetes and kubectl; the first run builds pulumi-kubernetes' plugin
	@$(SETUP) --dev
	@$(RUN) exec python -m tests.bench.cluster
