# `make` lists the targets. Everything is written in the clone and in ~/.cache/pulumi-trainer.
PYTHON ?= python3
RUN := .venv/bin/python tools/stack.py

.DEFAULT_GOAL := help
.PHONY: help setup up preview preview-kubernetes logs down clean check test bench

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "%-20s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## .venv with pinned packages, and the Pulumi CLI
	@$(PYTHON) tools/setup.py

up: setup ## train the quickstart's model on two local nodes
	@$(RUN) up

preview: setup ## what `make up` would do, field by field
	@$(RUN) preview

preview-kubernetes: setup ## the same program for a cluster: its full JobSet, without one
	@$(RUN) preview --stack kubernetes

logs: setup ## what the quickstart's jobs have printed
	@$(RUN) logs

down: setup ## end and remove what `make up` has made
	@$(RUN) down

clean: ## down, then remove everything that set-up and the stacks have written into the clone
	@if [ -x .venv/bin/python ] && [ -d .pulumi-state ]; then $(MAKE) --no-print-directory down; fi
	@rm -rf .venv build dist .pulumi .pulumi-state .pulumi-trainer Pulumi.local.yaml Pulumi.kubernetes.yaml *.egg-info \
	  .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@echo "kept: ~/.cache/pulumi-trainer (downloads, the Pulumi CLI, Python environments); remove it with rm -rf"

check: setup ## lint, types, layers, wheel and sdist
	@.venv/bin/python tools/check.py

test: setup ## all tests
	@$(RUN) exec python -m pytest

bench: setup ## measure, and print the tables of docs/benchmarks.md
	@$(RUN) exec python -m tests.bench
