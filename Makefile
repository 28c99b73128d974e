# `make` lists the targets. Everything is written in the clone and in ~/.cache/pulumi-trainer.

# The first Python on PATH that can make environments and is new enough; `make PYTHON=...` names another.
PYTHON ?= $(shell for python in python3 python3.14 python3.13 python3.12 python3.11 python3.10; do \
  $$python -c 'import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 10))' 2>/dev/null && echo $$python && break; done)
SETUP = $(or $(PYTHON),$(error Python 3.10 or newer, with its modules venv and ensurepip, is not on PATH: \
  install it (Debian and Ubuntu: python3-venv), or name it: make PYTHON=/path/to/python3)) tools/setup.py
RUN := .venv/bin/python tools/stack.py

.DEFAULT_GOAL := help
.PHONY: help setup setup-queues up preview preview-kubernetes logs down clean env check messages docs docs-serve dist picture record \
  test test-smoke test-engine test-pythons test-pulumi test-cluster test-nodes test-gangs test-frameworks test-fine-tuning test-site test-all coverage \
  bench bench-cluster bench-interruptions cluster-up cluster-down

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "%-20s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## .venv with pinned packages, and the Pulumi CLI
	@$(SETUP)

setup-queues: ## set-up, and the plugin of pulumi-kubernetes for programs with queues or PodGroups: downloaded, else built (with Go)
	@$(SETUP) --queues

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

check: ## lint, types, layers, docs, wheel and sdist
	@$(SETUP) --dev --no-cli
	@.venv/bin/python tools/check.py

messages: ## all texts for users in build/messages.txt, for review: code, where, why, hint
	@mkdir -p build
	@$(if $(wildcard .venv),.venv/bin/python,python3) tools/messages.py build/messages.txt components provider

docs: ## the docs site, in build/site; a broken link is an error
	@$(SETUP) --dev --no-cli
	@NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs build --strict

docs-serve: ## the docs site at http://127.0.0.1:8000, built again after each change
	@$(SETUP) --dev --no-cli
	@NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs serve --strict

dist: ## sdist, wheel, SBOM (CycloneDX), licences and checksums in dist/
	@$(SETUP) --dev --no-cli
	@.venv/bin/python tools/release.py

record: ## what a release of Trainer answers to the golden cases, its schemas and its types: TRAINER=v2.3.0, or a checkout (with Go)
	@$(SETUP) --dev --no-cli
	@.venv/bin/python -m tests.golden.recorder.record $(TRAINER)

picture: setup ## draw docs/flow.svg, the picture of the README, from real runs
	@$(RUN) exec python tools/picture.py

bench-interruptions: ## interrupt a job 100 times on real nodes (Linux, root) and on this machine, and each framework 20 times: 45 minutes
	@$(SETUP) --dev
	@.venv/bin/python -m tools.cluster build --nodes
	@$(RUN) exec env INTERRUPTIONS=100 python -m pytest -s tests/nodes/test_interruptions.py -k random
	@$(RUN) exec env LOCAL_INTERRUPTIONS=100 python -m pytest -s tests/engine/test_local_interruptions.py
	@$(RUN) exec env INTERRUPTED_PLACES=20 python -m pytest -s tests/frameworks/test_training.py -k random

cluster-up: ## a Kubernetes cluster on this machine, its KUBECONFIG printed last; NODES=2: with real nodes (Linux, root)
	@$(SETUP) --dev --no-cli >&2
	@.venv/bin/python -m tools.cluster up --nodes $(or $(NODES),0)

cluster-down: ## end it; no process, mount or cgroup stays
	@$(SETUP) --dev --no-cli >&2
	@.venv/bin/python -m tools.cluster down

PYTEST := $(RUN) exec python -m pytest --durations=10
RERUN := --reruns 1 --rerun-show-tracebacks

test: ## the unit and golden tests and the core of the engine's: 8 minutes on 2 cores, 15 from nothing
	@$(SETUP) --dev
	@$(PYTEST) -n 3 --dist=worksteal -m 'not slow' --clock started tests/unit tests/golden tests/engine # some wait more than they compute
	@$(PYTEST) -n 3 --dist=worksteal -m 'not slow' --clock old tests/unit

test-smoke: ## one test of each feature on a real control plane, if its programs are built; never builds them
	@$(SETUP) --dev
	@if .venv/bin/python -m tools.cluster built; then $(PYTEST) -m smoke tests/cluster; fi

test-engine: ## all tests with the real Pulumi engine: 20 minutes, PyTorch included
	@$(SETUP) --dev
	@$(PYTEST) -n 3 --dist=worksteal tests/engine

test-pythons: ## the unit tests on the oldest and the newest Python of this machine
	@$(SETUP) --dev
	@$(RUN) exec python tools/pythons.py

test-pulumi: ## the unit tests, the engine's core and a job in a cluster with the oldest and the newest Pulumi: 20 minutes, 40 from nothing
	@$(SETUP) --dev
	@.venv/bin/python -m tools.cluster build
	@$(RUN) exec python tools/pulumi_matrix.py

test-cluster: ## the Kubernetes target on a real control plane with simulated nodes
	@$(SETUP) --dev
	@.venv/bin/python -m tools.cluster build --plugin
	@$(PYTEST) $(RERUN) -n 3 --dist=worksteal tests/cluster

test-nodes: ## the Kubernetes target on real nodes (Linux, root)
	@$(SETUP) --dev
	@.venv/bin/python -m tools.cluster build --nodes
	@$(PYTEST) $(RERUN) tests/nodes -m 'not whole'

test-gangs: ## the Kubernetes target with the gang schedulers Volcano and KAI; the first run builds them
	@$(SETUP) --dev
	@.venv/bin/python -m tools.cluster build --gangs
	@$(PYTEST) $(RERUN) tests/gangs

test-frameworks: ## train with every framework's real packages, MPI's mpirun too, some on real nodes (Linux, root); the first run downloads a few gigabytes
	@$(SETUP) --dev
	@$(RUN) exec python tools/debian.py
	@$(PYTEST) $(RERUN) tests/frameworks tests/fine_tuning -m 'not whole'
	@.venv/bin/python -m tools.cluster build --nodes
	@$(PYTEST) $(RERUN) tests/nodes/test_mpi_frameworks.py tests/nodes/test_tensorflow_and_paddle.py

test-fine-tuning: ## train with all methods of TRL, Transformers, LLaMA-Factory and torchtune: about 13 minutes on 2 cores; some on real nodes (Linux, root)
	@$(SETUP) --dev
	@$(PYTEST) $(RERUN) tests/fine_tuning
	@.venv/bin/python -m tools.cluster build --nodes
	@$(PYTEST) $(RERUN) tests/nodes/test_fine_tuning.py

coverage: ## branch coverage of documents, admission, pipeline and lifecycle by the unit and golden tests: 95 % or it fails
	@$(SETUP) --dev --no-cli
	@$(PYTEST) -n 3 --dist=worksteal tests/unit tests/golden --cov --cov-report=term-missing:skip-covered

test-site: docs ## the docs site in Chromium: clipped blocks, requests to other hosts, search, axe-core; needs chromium on PATH
	@$(RUN) exec uv run --isolated --no-project --with pytest --with playwright==1.65.2 --with axe-playwright-python==0.1.8 \
	  python -m pytest --noconftest -c /dev/null --rootdir tests/site -p no:cacheprovider tests/site

test-all: ## every target above, one after the other whatever fails, and a table of the results: two to three hours
	@$(SETUP) --dev
	@.venv/bin/python tools/test_all.py

bench: ## measure, and print the tables of docs/benchmarks.md
	@$(SETUP) --dev
	@$(RUN) exec python -m tests.bench

bench-cluster: ## the same for a cluster, beside pulumi-kubernetes and kubectl; the first run builds pulumi-kubernetes' plugin
	@$(SETUP) --dev
	@$(RUN) exec python -m tests.bench.cluster
