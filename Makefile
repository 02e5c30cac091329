# Every target does its own set-up first (scripts/setup.sh), which costs nothing when it is done already.

.DEFAULT_GOAL := help
.SUFFIXES:
.PHONY: help setup demo test lint long bench-locks wheel wheel-check constraints clean distclean

BIN := .venv/bin

help: ## this text
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo '  ARGS="…" goes to the command behind the target: make demo ARGS="--receiver redis", make test ARGS="-k claim"'

setup: ## what is missing: system packages (as root or with sudo), then .venv as constraints.txt says
	@scripts/setup.sh

demo: setup ## the story in three acts, on a real ZooKeeper: zkfence demo
	@$(BIN)/zkfence demo $(ARGS)

test: lint ## everything: the checks of `lint`, then all tests but the long ones
	$(BIN)/python -m pytest $(ARGS)

lint: setup ## ruff, mypy and who may import whom
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

long: setup ## the long runs only
	$(BIN)/python -m pytest -m long $(ARGS)

bench-locks: ## zkfence beside kazoo's and Curator's locks: tables of ratios, a plot in build/bench-locks (half an hour)
	@scripts/setup.sh bench
	@$(BIN)/python -m benchmarks.locks $(ARGS)

wheel: setup ## dist/zkfence-VERSION-py3-none-any.whl
	rm -rf dist
	$(BIN)/hatchling build -t wheel

wheel-check: setup ## the wheel, installed into an environment of its own, and the README's quickstart on it
	$(BIN)/python -m pytest tests/packaging $(ARGS)

constraints: setup ## constraints.txt anew from pyproject.toml; ARGS=--upgrade for new versions (needs the network)
	scripts/lock.sh $(ARGS)

clean: ## what was built and cached; .venv stays
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find zkfence receivers tests benchmarks -type d -name __pycache__ -exec rm -rf {} +

distclean: clean ## .venv too
	rm -rf .venv
