# Two commands matter: `make demo` and `make test`. Both install what they need.
SHELL := /bin/sh
UV := .cache/uv-0.13.8/bin/uv
RUN := $(UV) run --frozen
PYTEST_ARGS ?=

.PHONY: help setup demo demo-down install test check generate bench soak clean

help: ## Show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 14

setup: .venv/.ready ## Prepare the checkout: uv and the locked environment

.venv/.ready: pyproject.toml uv.lock hack/setup.sh
	@hack/setup.sh
	@touch $@

demo: setup ## A cluster, the operator, a tiny model in two tiers, and an answer from each
	@$(RUN) python -m demo up

demo-down: setup ## Remove everything that `make demo` made
	@$(RUN) python -m demo down

install: setup ## CRD, RBAC and operator into the cluster of the current kubectl context
	@$(RUN) kubectl apply --server-side -f crds/reasoningpool.yaml
	@$(RUN) kubectl apply --server-side -k operator/deploy

test: setup ## Unit, property, golden, control-plane and, as root, end-to-end tests
	@$(RUN) pytest -m "not soak" $(PYTEST_ARGS)

check: setup ## Lint, format, types, import layers, generated files
	@$(RUN) ruff check
	@$(RUN) ruff format --check
	@$(RUN) mypy
	@$(RUN) lint-imports
	@$(RUN) python -m generate --check
	@$(RUN) yamllint -s .yamllint.yaml crds examples operator/deploy
	@$(RUN) shellcheck hack/*.sh .ci/run operator/src/reasoningpool/render/gateway/drain.sh

generate: setup ## Write generated files: the CRD, the references in docs/ and the golden files
	@$(RUN) python -m generate
	@$(RUN) pytest -q tests/golden --update-golden

bench: setup ## Benchmarks with figures (minutes)
	@$(RUN) python -m bench

soak: setup ## Long runs with faults (an hour)
	@$(RUN) pytest -m soak --timeout=7200
	@$(RUN) pytest --hypothesis-profile=explore --timeout=7200 tests/unit tests/property

clean: ## Remove the environment and caches of this checkout
	@rm -rf .venv .cache .pytest_cache .mypy_cache .ruff_cache .hypothesis
